# Two commands matter on a fresh Debian machine with Go and root: `make run` and `make test`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

FUZZTIME ?= 20s
BENCHTIME ?= 1s
COUNT ?= 45
SEED ?= 1
SEEDS ?= 1-40
CORPUS ?= .cache/fuzz
KUBELET ?=
export CGO_ENABLED ?= 0

# Where make install puts the agent (docs/install.md).
NAME ?= seedlet
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
UNITDIR ?= $(PREFIX)/lib/systemd/system
DEFAULTDIR ?= /etc/default
KUBEADM ?= no
DESTDIR ?=
# Without the traces of gRPC, which the agent does not switch on, the linker leaves out methods that nothing
# calls: the agent is a quarter smaller, on the disk and in memory.
TAGS := grpcnotrace
# What is given away says neither where nor when it was built.
export RELEASE_FLAGS ?= -tags=$(TAGS) -trimpath -buildvcs=false -ldflags='-s -w -buildid='

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10
	@echo
	@echo 'make run:  CONTAINER_RUNTIME_ENDPOINT=unix:///run/x.sock  the runtime to use'
	@echo '           DURATION=30s  stop after this time, and fail unless the pods reached their expected state'
	@echo 'make test: MUTANTS=all  every mutant of sim/mutants_test.go, not one in ten of them'
	@echo '           RUNTIMES=all  every part of TestPods on the older containerd, not one in three'
	@echo 'make fuzz: FUZZTIME=20s per target; make bench: BENCHTIME=1s per benchmark;'
	@echo '           KUBELET=PATH  a kubelet that is measured beside the agent (docs/pace.md)'
	@echo 'make soak: CORPUS=.cache/fuzz  the folder of what was found: failures/*.yaml, corpus.json'
	@echo 'make install: NAME=seedlet or kubelet; PREFIX=/usr/local, BINDIR, UNITDIR, DEFAULTDIR, DESTDIR; KUBEADM=yes'
	@echo '           for a node of kubeadm'
	@echo 'make mutants: COUNT=45 changes of the source drawn from SEED=1, judged by SEEDS=1-40 of each scenario'

.PHONY: build
build: ## build bin/seedlet and bin/seedsim
	go build -tags=$(TAGS) -o bin/seedlet ./cmd/seedlet
	go build -o bin/seedsim ./cmd/seedsim

.PHONY: install uninstall
install: export AGENT ?= bin/seedlet
install uninstall: export NAME := $(NAME)
install uninstall: export BINDIR := $(BINDIR)
install uninstall: export UNITDIR := $(UNITDIR)
install uninstall: export DEFAULTDIR := $(DEFAULTDIR)
install uninstall: export KUBEADM := $(KUBEADM)
install uninstall: export DESTDIR := $(DESTDIR)
install: ## install what make build has built, as a service; see below
	@hack/install.sh install

uninstall: ## remove what make install has installed, with the same variables
	@hack/install.sh uninstall

.PHONY: deb
deb: ## build the Debian package bin/seedlet_VERSION_ARCHITECTURE.deb
	@hack/deb.sh bin

.PHONY: image
image: ## build an image of the agent, bin/seedlet-image.tar
	@go build -o .cache/playground ./cmd/playground
	@.cache/playground image

.PHONY: run
run: ## run the agent on a real containerd with example pods, until Ctrl-C or DURATION
	@echo '· building'
	@go build -tags=$(TAGS) -o bin/seedlet ./cmd/seedlet
	@go build -o .cache/playground ./cmd/playground
	@exec .cache/playground

.PHONY: cluster
cluster: ## run a real control plane with one node, until Ctrl-C or DURATION
	@echo '· building'
	@go build -tags=$(TAGS) -o bin/seedlet ./cmd/seedlet
	@go build -o .cache/playground ./cmd/playground
	@exec .cache/playground cluster

.PHONY: test
test: ## install what the tests need and run all of them
	@hack/test.sh

.PHONY: kubeadm
kubeadm: ## have kubeadm set up, upgrade and reset two nodes whose kubelet is the agent
	@go build -o .cache/playground ./cmd/playground && .cache/playground setup
	SEEDLET_KUBEADM=1 go test -v -count=1 -timeout 40m ./realworld/nodetest/kubeadm

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	@hack/fuzz.sh $(FUZZTIME)

.PHONY: soak
soak: ## search for failures in the simulator until Ctrl-C, and go on from CORPUS the next time
	@go build -o bin/seedsim ./cmd/seedsim
	@exec bin/seedsim fuzz --budget 0 --corpus $(CORPUS)

.PHONY: mutants
mutants: ## change the source at COUNT places drawn from SEED, and say which changes no test finds
	go run ./hack/mutants -count $(COUNT) -seed $(SEED) -seeds $(SEEDS)

.PHONY: bench
bench: export KUBELET := $(abspath $(KUBELET))
bench: ## run every benchmark, one package at a time
	@go build -o .cache/playground ./cmd/playground && .cache/playground setup
	go test -p 1 -timeout 90m -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $$(hack/packages-with.sh Benchmark)

.PHONY: clean
clean: ## remove everything that was built, including the pinned containerd and Kubernetes
	rm -rf bin .cache
