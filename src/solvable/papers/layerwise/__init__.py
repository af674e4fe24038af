"""The thesis on layerwise linear models"""
