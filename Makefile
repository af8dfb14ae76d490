# Needs make, git and Python 3.11 or newer with venv; everything else goes into .venv.

# Tried in this order; `make PYTHON=/path/to/python` tries that one only.
PYTHON ?= python3.13 python3.12 python3.11 python3
BIN := .venv/bin
INSTALLED := .venv/.installed
READY := .venv/.ready
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Kubernetes of the control plane, of this minor version instead of the default: make control-plane VERSION=1.35
ifdef VERSION
export FLOWSCHED_KUBERNETES := $(VERSION)
endif

# Without its caches every process compiles all modules again, and every test run rewrites all assertions.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo check control-plane node-parts kueue conformance conformance-sample upstream-cases test soak bench profiles gpu-profiles
.PHONY: clean quick explore durations docs constraints release-check release-sign release-verify pins types rules

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## make .venv, install flowsched into it with its tools, compile the models; again only when pyproject.toml or constraints.txt changes
	@:

demo: $(INSTALLED) ## two comparisons of the default policies on PARSEC jobs beside memcached; reports go to out/demo
	@echo "1 of 2: seven jobs, all at once, on three machines (parsec-memcached-2024)"
	@$(BIN)/flowsched simulate parsec-memcached-2024 --out out/demo
	@echo "2 of 2: forty jobs that arrive, and a p95 goal that one kind of them breaks (memcached-tight-goal)"
	@$(BIN)/flowsched simulate memcached-tight-goal --out out/demo/tight-goal

check: setup ## lint, format, spelling, types and the rules of the house
	@$(MAKE) --no-print-directory -j 2 types rules

types: setup
	$(BIN)/mypy --num-workers auto

rules: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/pytest -q tests/test_house.py

control-plane: setup ## build etcd, kube-apiserver, kubectl and helm for the Kubernetes tests (VERSION=1.35: of another); needs Go, minutes
	@$(BIN)/python k8s/control_plane/control_plane.py build
	@$(BIN)/python k8s/control_plane/helm.py

node-parts: control-plane ## build kubelet and containerd for the tests of the agent on a real node; needs Go, minutes the first time
	@$(BIN)/python k8s/control_plane/node_parts.py build

kueue: control-plane ## build Kueue for the tests of its groups of pods; needs Go, minutes the first time
	@$(BIN)/python k8s/control_plane/kueue.py build

conformance: setup ## cases of other schedulers' tests under kube-scheduler and flowsched; needs Go, some fifteen minutes
	@$(CONFORMANCE) $(OPTIONS)

conformance-sample: setup ## 120 of these cases, of which the tests run every second; needs Go
	@$(CONFORMANCE) --sample 120

upstream-cases: setup ## record upstream's table cases into the cache; needs Go, minutes the first time
	@$(CONFORMANCE) --record

CONFORMANCE := PYTHONPATH=tests:tests/k8s $(BIN)/python -m conformance

test: check ## all checks, then all tests; those against a real Kubernetes API server where there is Go
	@if command -v go >/dev/null; then \
	  $(MAKE) -s control-plane; \
	else \
	  echo "skipped: the tests against a real Kubernetes API server, because Go is not installed"; \
	fi
	@$(BIN)/flowsched warm-up # compiled once, not by every test at the same time
	$(BIN)/pytest -n auto $(addprefix --ignore=,$(ALONE) tests/test_house.py) # the latter ran in check
	$(BIN)/pytest $(ALONE) # it measures latencies: other tests beside it would be all that it sees

quick: setup ## the quick tests, without any server: under a minute and a half on two cores
	@$(BIN)/flowsched warm-up
	$(BIN)/pytest -q -n auto -m unit

explore: setup ## property tests with random examples, up to a thousand each, five minutes of soak, more of what tests try a part of; OPTIONS='-k NAME': these only
	$(BIN)/pytest -q -n auto -m "unit or slow" --hypothesis-profile=explore $(OPTIONS)
ifndef OPTIONS
	$(BIN)/pytest -q --hypothesis-profile=explore $(LONGER)
endif

durations: setup ## run all tests and keep how long each takes: tests/durations.txt says which ones are slow
	@$(BIN)/flowsched warm-up # or the first tests would seem to take what is compiled for all
	-$(BIN)/pytest -q -n auto --junitxml=out/tests.xml
	$(BIN)/python tests/tiers.py out/tests.xml

ALONE := tests/agent/test_live_latency.py
LONGER := tests/k8s/test_soak.py tests/k8s/test_live_conformance.py tests/k8s/test_live_failover.py

release-check: setup ## build wheel, source archive and list of contents, and check them: metadata, files, hashes, the demo from an empty environment, the image's steps
	@.ci/release-check

release-sign: ## sign what release-check has left in dist with KEY=file of an SSH key
	ssh-keygen -Y sign -n flowsched-release -f "$(KEY)" dist/SHA256SUMS

release-verify: ## check a release in FOLDER=dist against its sums and signature; SIGNERS=file of allowed signers
	@$(or $(wildcard $(BIN)/python),python3) k8s/release_contents.py check "$(or $(FOLDER),dist)" $(if $(SIGNERS),--signers "$(SIGNERS)")

pins: setup ## look up hashes of the image's packages, digest of its base and commits of CI's actions; needs a network, docker and git
	$(BIN)/python k8s/pins.py $(PARTS)

MINUTES ?= 10

soak: control-plane ## churn and one disturbance after the other for MINUTES (10) on a real control plane; needs Go
	@PYTHONPATH=tests $(BIN)/python tests/k8s/soak.py --minutes $(MINUTES) $(OPTIONS)

docs: setup ## build the documentation site into out/docs; a link that leads nowhere is an error
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs out/docs
	@echo "open out/docs/index.html"

bench: setup ## list the benchmarks and how to run them
	@found=; \
	for file in $$(grep -l __main__ benchmarks/*.py 2>/dev/null); do \
	  found=yes; \
	  name=$$(basename "$$file" .py); \
	  printf '%s -m benchmarks.%s --help\n    %s\n' $(BIN)/python "$$name" "$$(sed -n '1s/"""//gp' "$$file")"; \
	done; \
	if [ -z "$$found" ]; then echo "There are no benchmarks yet."; fi

SOURCE := Jobs of PARSEC and memcached on machines of Google Cloud, measured by groups of the course Cloud Computing \
Architecture (ETH Zurich): runs and sweeps of 2023 and 2024, sweeps of 2025

profiles: setup ## fit the bundled profiles again to the measurements in DATA=folder; docs/calibration.md says which
	$(BIN)/flowsched calibrate "$(DATA)" --years 2023,2024 --sweeps-of 2025 --all-types --title "$(SOURCE)" \
	  --out models/flowsched_models/data/profiles.yaml --report out/profiles.html

GPU_SOURCE := Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads, OSDI 2020. \
Measurements: stanford-futuredata/gavel at c4fa40097339e9608ab71fd64c8bdea96a5e4a4c, MIT

gpu-profiles: setup ## make the bundled profiles of training jobs again from Gavel's throughputs in DATA=folder
	$(BIN)/flowsched calibrate "$(DATA)" --title "$(GPU_SOURCE)" --out models/flowsched_models/data/gavel.yaml

constraints: ## write the versions that .venv has to constraints.txt, which setup installs
	@{ \
	  echo "# Versions that make setup installs, on Python 3.11 to 3.13. Made by make constraints; CONTRIBUTING.md says how to change them."; \
	  $(BIN)/python -m pip freeze --disable-pip-version-check --all --exclude-editable --exclude pip; \
	} > constraints.new
	@mv constraints.new constraints.txt

clean: ## remove all that was made here: .venv, out, builds, caches
	rm -rf .venv out build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

FITS := import sys; sys.exit(sys.version_info < (3, 11))

$(INSTALLED): pyproject.toml constraints.txt
	@set -e; \
	if ! $(BIN)/python -c '$(FITS)' 2>/dev/null || ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	  python=; bare=; old=; \
	  for name in $(PYTHON); do \
	    if "$$name" -c '$(FITS)' >/dev/null 2>&1; then \
	      if "$$name" -c 'import venv, ensurepip' >/dev/null 2>&1; then python=$$name; break; fi; \
	      bare=$${bare:-$$name}; \
	    elif version=$$("$$name" -V 2>&1); then old="; $$name is $$version"; \
	    fi; \
	  done; \
	  if [ -z "$$python" ] && [ -n "$$bare" ]; then \
	    package=$$("$$bare" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	    echo "$$bare cannot make virtual environments; on Debian or Ubuntu: apt-get install $$package" >&2; exit 1; \
	  fi; \
	  if [ -z "$$python" ]; then \
	    echo "flowsched needs Python 3.11 or newer, and there is none among: $(PYTHON)$$old" >&2; exit 1; \
	  fi; \
	  echo "setting up .venv (half a minute beside the downloads) …"; \
	  "$$python" -m venv --clear .venv; \
	else \
	  echo "bringing .venv up to date …"; \
	fi; \
	$(INSTALL) --no-compile -e .; \
	touch $@

$(READY): $(INSTALLED)
	@set -e; \
	echo "installing what developers need, and compiling (a minute of CPU) …"; \
	$(INSTALL) -e '.[dev]'; \
	$(BIN)/flowsched warm-up; \
	touch $@
