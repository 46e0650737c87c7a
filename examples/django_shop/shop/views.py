"""The shop's views."""

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from nsqclient import NSQError
from nsqclient.contrib.django import get_producer, publish_on_commit
from shop.models import Order, Receipt


def orders(request: HttpRequest) -> JsonResponse:
    """POST stores an order and announces it; GET counts."""
    if request.method != "POST":
        return JsonResponse(
            {"orders": Order.objects.count(), "receipts": Receipt.objects.count()})
    order = {"reference": request.POST["reference"], "cents": int(request.POST["cents"])}
    with transaction.atomic():
        Order.objects.create(**order)
        publish_on_commit("orders", json.dumps(order).encode())
    return JsonResponse(order, status=201)


def ready(request: HttpRequest) -> JsonResponse:
    """For a load balancer: 200 when orders can be announced, else 503."""
    try:
        get_producer().ping(timeout=1)
    except NSQError as exc:
        return JsonResponse({"ready": False, "reason": str(exc)}, status=503)
    return JsonResponse({"ready": True})
