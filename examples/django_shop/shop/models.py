"""Orders and receipts."""

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    reference = models.CharField(max_length=40, unique=True)
    cents = models.PositiveIntegerField()


class Receipt(models.Model):
    """Written by the worker, once for an order however often its message comes."""

    reference = models.CharField(max_length=40, unique=True)
    text = models.TextField()
