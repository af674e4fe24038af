"""Asymptotic Dynamics for Delayed Feature Learning in a Toy Model (2024)"""
