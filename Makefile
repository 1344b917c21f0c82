# Two commands do everything: `make demo` and `make test`. The rest are their parts, or go further.
PYTHON ?= python3
VENV ?= .venv
CLIENTS ?= .venv-clients
BIN := $(VENV)/bin
# 30 and 60 first: on an empty node they meet on one GPU.
EXAMPLES := examples/thirty-and-sixty.yaml \
    $(filter-out examples/thirty-and-sixty.yaml,$(sort $(wildcard examples/*.yaml)))
# Those about whole GPUs name the machine they are to be seen on.
MACHINES := two-socket-pcie-8 v100x4-nvlink
ELSEWHERE := $(shell grep -l -e "--machine" $(EXAMPLES))
NATIVE := $(shell find native -type f) vcuda_shim/build.py pyproject.toml

# Each of the programs that tests start would compile the agent anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

.PHONY: setup
setup: $(VENV)/developing ## set up .venv with everything to develop: some three minutes

.PHONY: demo
demo: $(VENV)/installed ## set up, then run the examples on simulated nodes
	$(BIN)/gpumanager simulate $(filter-out $(ELSEWHERE),$(EXAMPLES))
	for machine in $(MACHINES); do $(BIN)/gpumanager simulate --machine $$machine \
	    $$(grep -l -e "--machine $$machine " $(ELSEWHERE)) || exit 1; done
	$(BIN)/gpumanager simulate $(sort $(wildcard examples/claims/*.yaml))

.PHONY: test
test: lint types unit ## set up, then lint, types and the whole test suite

# What starts containers, builds programs, plays machines for long, or reads pages.
SLOW := benchmarks chart cli clients crashes dashboards deviceplugin/identity/test_identity.py \
    deviceplugin/test_deaths.py docs doctor/test_ill_gpus.py dra/test_device_storm.py \
    dra/test_moving_node.py dra/test_node_of_claims.py e2e gpu/health/test_health_contract.py gpu/usage \
    gpu_check hostile legacy/test_gpu_client_at_agent.py limits/test_manager_crash.py \
    monitor/test_monitored_node.py native/arbiter/test_turns.py native/core/memory/test_books_model.py \
    native/core/test_fuzz.py native/core/test_sanitizers.py native/shim native/sim native/table \
    node_status/test_agent_in_a_cluster.py node_status/test_manager_watch.py \
    node_status/test_outage_histories.py node_status/test_unlimited_pods.py recovery/test_histories.py \
    runtime/test_cri.py scheduler/http/test_hostile_http.py sim test_install.py test_readme.py \
    volume/test_publish.py web

.PHONY: test-fast
test-fast: lint ## lint, then what answers soon: all but containers, builds, simulated machines and pages
	ls -d $(addprefix tests/,$(SLOW)) >/dev/null
	GRPC_ENABLE_FORK_SUPPORT=0 $(BIN)/pytest -q -n 4 --dist loadfile $(addprefix --ignore=tests/,$(SLOW)) tests

.PHONY: test-docs
test-docs: $(VENV)/developing ## pages and tables: docs, README, chart, dashboards, benchmark's cases, imports
	GRPC_ENABLE_FORK_SUPPORT=0 $(BIN)/pytest -q -n 2 --dist loadfile tests/docs tests/chart tests/dashboards \
	    tests/benchmarks tests/test_architecture.py tests/test_readme.py

.PHONY: mutants
NUMBER ?= 100
SEED ?= 1
mutants: $(VENV)/developing ## faults seeded in the packages: which do their tests miss? (hours; PACKAGE=grants minutes, NUMBER=100 of each, SEED=1)
	$(BIN)/python -m tests.mutants $(PACKAGE) --number $(NUMBER) --seed $(SEED)

.PHONY: lint
lint: $(VENV)/developing ## ruff, clang-format, generated modules up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	git ls-files 'native/*.c' 'native/*.h' 'benchmarks/gpu_check/*.c' 'benchmarks/gpu_check/*.h' | xargs $(BIN)/clang-format --dry-run -Werror
	$(BIN)/python tests/generated.py

.PHONY: types
types: $(VENV)/developing ## mypy, strict
	$(BIN)/mypy

.PHONY: unit
unit: $(VENV)/developing ## the test suite
	GRPC_ENABLE_FORK_SUPPORT=0 $(BIN)/pytest -q -n 3 --dist loadfile --max-worker-restart=0

.PHONY: e2e
e2e: $(VENV)/developing ## pods on a real node with a real kubelet, built where missing (root; minutes); KUBERNETES=1.37, CONTAINERD=2 for others
	$(if $(KUBERNETES),GPUMANAGER_E2E_VERSION=$(KUBERNETES)) \
	$(if $(CONTAINERD),GPUMANAGER_E2E_CONTAINERD=$(CONTAINERD)) $(BIN)/python -m tests.e2e.run

.PHONY: e2e-vm
e2e-vm: $(VENV)/developing ## the same in a virtual machine without KVM, where cgroups are v2 and systemd makes them (x86-64)
	$(if $(KUBERNETES),GPUMANAGER_E2E_VERSION=$(KUBERNETES)) \
	$(if $(CONTAINERD),GPUMANAGER_E2E_CONTAINERD=$(CONTAINERD)) $(BIN)/python -m tests.e2e.vm.run

.PHONY: chart
chart: $(VENV)/developing ## the Helm chart's schema, goldens, raw YAML and values table, made anew by a real helm
	$(BIN)/python -m tests.chart.helm_program
	$(BIN)/python -m tests.chart.generate

.PHONY: image-check
image-check: $(VENV)/developing ## the Dockerfile run to its end by buildah, and its image looked at (root; some ten minutes)
	PYTHONPATH=deploy $(BIN)/python -m tests.chart.image_check

.PHONY: newcomer
newcomer: $(VENV)/developing ## README and docs/start.md followed word by word in a fresh clone, with a stopwatch (some five minutes)
	$(BIN)/python -m tests.docs.newcomer

.PHONY: release
release: $(VENV)/developing ## dist: wheels, sdist, images for amd64 and arm64, chart, what is in them, digests (Debian's apt; no registry, no Docker)
	$(BIN)/python deploy/release.py

.PHONY: test-clients
test-clients: $(CLIENTS)/installed ## CUDA and NVML programs and their own test suites, bare and behind the shim (1 GB of packages)
	GRPC_ENABLE_FORK_SUPPORT=0 $(CLIENTS)/bin/pytest -q -m clients --durations=10 tests/clients

.PHONY: test-clients-all
test-clients-all: $(CLIENTS)/installed ## the same and the longest suites; writes the table of docs/clients.md
	GRPC_ENABLE_FORK_SUPPORT=0 $(CLIENTS)/bin/pytest -q -m 'clients or all_clients' --durations=20 tests/clients
	PYTHONPATH=. $(CLIENTS)/bin/python -m tests.clients.counts

.PHONY: test-web
test-web: $(VENV)/developing ## the web pages in this machine's Chromium
	$(BIN)/python -m pip install -q -e '.[browser]'
	GRPC_ENABLE_FORK_SUPPORT=0 $(BIN)/pytest -q tests/web

.PHONY: format
format: $(VENV)/developing ## put all sources into their format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only -q .
	git ls-files 'native/*.c' 'native/*.h' 'benchmarks/gpu_check/*.c' 'benchmarks/gpu_check/*.h' | xargs $(BIN)/clang-format -i

.PHONY: bench
bench: $(VENV)/developing ## measure: placement, HELLO, starts, hooks, Allocate, claims, the agent, sharing, a scrape (some ten minutes)
	for subject in placement hello starts hooks allocate claims agent sharing scrape; do \
	    echo "== $$subject"; $(BIN)/python benchmarks/$$subject.py || exit 1; done

.PHONY: bench-compute
bench-compute: $(VENV)/developing ## measure: compute shares on a simulated GPU (some two minutes; OPTIONS=--help)
	$(BIN)/python benchmarks/shares.py $(OPTIONS)

.PHONY: bench-latency
bench-latency: $(VENV)/developing ## measure: latency of a service beside a trainer on a simulated GPU (some minutes; OPTIONS=--help)
	$(BIN)/python benchmarks/latency.py $(OPTIONS)

.PHONY: bench-scheduler
bench-scheduler: $(VENV)/developing ## measure: the extender over HTTP, 5,000 nodes, 25,000 pods (some three minutes; OPTIONS=--help)
	$(BIN)/python benchmarks/scheduler.py $(OPTIONS)

.PHONY: bench-kube-scheduler
bench-kube-scheduler: $(VENV)/developing ## measure: a real kube-scheduler with the extender and without it (etcd; built where missing; OPTIONS=--help)
	$(BIN)/python benchmarks/kube_scheduler.py $(OPTIONS)

.PHONY: gpu-bundle
gpu-bundle: $(VENV)/developing ## the check on a GPU as one folder, for a machine without a network: build/gpu-bundle
	$(BIN)/python benchmarks/gpu_bundle.py

.PHONY: gpu-check
TORCH ?= $(PYTHON)
gpu-check: gpu-bundle ## the shim on this machine's GPU, with PyTorch of TORCH=python3 (under ten minutes; STAGES=first, rest, …)
	PYTHON=$(TORCH) build/gpu-bundle/gpu-check.sh $(STAGES)

.PHONY: gpu-bundle-selftest
gpu-bundle-selftest: $(VENV)/developing ## can each check on a GPU fail? Mutants on the simulated GPU (some five minutes)
	PYTHONPATH=benchmarks $(BIN)/python -m tests.gpu_check.selftest

.PHONY: real-libraries
real-libraries: ## NVIDIA's driver libraries from Debian's non-free, and UCX, for tests without a GPU (52 MB)
	$(PYTHON) tests/native/table/fetch_real_libraries.py

.PHONY: headers
headers: $(VENV)/developing ## NVIDIA's headers, 12.8 to 13.5, and the census made anew from them (20 MB of packages)
	$(BIN)/python tests/native/table/fetch_headers.py .headers
	$(BIN)/python native/table/headers.py .headers
	$(BIN)/python native/table/document.py

.PHONY: fuzz
SECONDS ?= 60
fuzz: $(VENV)/developing ## hostile answers and pages under sanitizers, SECONDS=60 for each target
	$(BIN)/python -m tests.native.core.fuzz --seconds $(SECONDS)

.PHONY: hostile
SIEGE_SECONDS ?= 600
hostile: $(VENV)/developing ## hostile tenants at random, SECONDS=60 for each kind, then one GPU under all attacks (root; SIEGE_SECONDS=600)
	$(BIN)/python -m tests.hostile.random_attacks --seconds $(SECONDS)
	$(BIN)/python -m tests.hostile.siege --seconds $(SIEGE_SECONDS)

.PHONY: storm
storm: $(VENV)/developing ## 2 to 64 processes racing for the last bytes of a GPU, killed at random
	$(BIN)/python -m tests.native.shim.process.storm

.PHONY: clean
clean: ## remove everything built
	rm -rf $(VENV) $(CLIENTS) build dist *.egg-info vcuda_shim/lib vcuda_shim/bin vcuda_shim/*.so

$(VENV)/bin/python $(CLIENTS)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=…")'
	$(PYTHON) -m venv $(@:/bin/python=)

# Apart from the others: these pin versions, of CUDA's bindings among them.
$(CLIENTS)/installed: $(NATIVE) | $(CLIENTS)/bin/python
	$(CLIENTS)/bin/python -m pip install -q -e '.[clients]'
	@touch $@

$(VENV)/installed: $(NATIVE) | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[examples]'
	@touch $@

$(VENV)/developing: $(NATIVE) | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[dev]'
	@touch $(VENV)/installed $@
