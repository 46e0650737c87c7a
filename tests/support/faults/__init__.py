"""Faults that tests make: proxies, hostile servers, interrupts."""
