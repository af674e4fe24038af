"""Grokking in Linear Estimators (Levi, Beck, Bar-Sinai, 2023)"""
