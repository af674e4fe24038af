"""How Feature Learning Can Improve Neural Scaling Laws (2024)"""
