"""The shop's view."""

from django.db import IntegrityError, transaction
from django.http import HttpRequest, JsonResponse

from nsqclient.contrib.django import publish_in_transaction
from shop.models import Order, Receipt


def orders(request: HttpRequest) -> JsonResponse:
    """POST stores an order and announces it, both or neither; GET counts."""
    if request.method == "POST":
        reference = request.POST["reference"]
        try:
            with transaction.atomic():
                publish_in_transaction("orders", reference.encode())
                Order.objects.create(reference=reference)
        except IntegrityError:
            return JsonResponse({"error": "this order exists"}, status=409)
    return JsonResponse({"orders": Order.objects.count(), "receipts": Receipt.objects.count()})
