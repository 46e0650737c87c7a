"""Recipes that need packages or jars of their own: ``make spark-recipes``."""
