#!/bin/sh
# Fetch what "make test-external" uses: Debian's Prometheus, unpacked and not installed; axe-core, Azurite, MinIO.
cd "$(dirname "$0")/.." || exit 1
mkdir -p .cache/prometheus
(
    cd .cache/prometheus && { test -x promtool || {
        { apt-get -q download prometheus || { apt-get -q update && apt-get -q download prometheus; }; } &&
            dpkg -x prometheus_*.deb . && mv usr/bin/prom* . && rm -rf etc lib usr var ./*.deb
    }; }
) >/dev/null 2>&1 && echo "prometheus and promtool are in .cache/prometheus" || echo "NOT FETCHED: Prometheus (needs apt-get)"
npm install --prefix .cache/axe --silent --no-audit --no-fund axe-core@4 >/dev/null 2>&1 &&
    echo "axe-core is in .cache/axe" || echo "NOT FETCHED: axe-core (needs npm)"
npm install --prefix .cache/azurite --silent --no-audit --no-fund azurite@3 >/dev/null 2>&1 &&
    echo "Azurite is in .cache/azurite" || echo "NOT FETCHED: Azurite (needs npm)"
"${PYTHON:-python3}" tools/build_minio.py || echo "NOT FETCHED: MinIO (needs Go)"
