"""A stand-in for curl with the manual's options: -X METHOD, -H HEADER, -d DATA, and a URL."""

import argparse

import requests

parser = argparse.ArgumentParser()
parser.add_argument("-X", dest="method")
parser.add_argument("-H", dest="headers", action="append", default=[])
parser.add_argument("-d", dest="data")
parser.add_argument("url")
given = parser.parse_args()
headers = {"Content-Type": "application/x-www-form-urlencoded"} if given.data else {}
headers.update(header.split(": ", 1) for header in given.headers)
print(requests.request(
    given.method or ("POST" if given.data else "GET"), given.url,
    headers=headers,
    data=given.data.encode() if given.data else None, timeout=20,
).text)
