"""Recipes that need packages or jars of their own: ``make hard NAME=spark-recipes``."""
