# Thin: each target is a script in scripts/, which also says what it takes. Machines without make run those.
SECONDS ?= 30
ARGS ?=
ONLY ?=
LONG ?=
unexport SECONDS ARGS ONLY LONG MAKEFLAGS

.DEFAULT_GOAL := build
.PHONY: help build page test-web screenshots test demo claims compare-mpi readme gallery test-bare test-vendor portable package test-packages test-images test-containers test-gpu test-rdma test-torch sbom asan tsan fuzz format format-check tidy tidy-changed clean

help: ## this list; make alone builds
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

build: ## install what is missing, build everything into build/
	@scripts/setup.sh build && scripts/build.sh release

test-web: ## the operator's page in Debian's Chromium: every view, each fault of the recordings, axe-core
	@scripts/test_web.sh

screenshots: ## the pictures of docs/page/ anew
	@scripts/test_web.sh screenshots

page: ## the operator's page anew, with npm (which it installs); the next build puts it into c4
	@scripts/setup.sh page && scripts/page.sh --must

test: ## install what is missing, build, run the tests that need no special hardware
	@scripts/test.sh release

demo: ## install what is missing, build, break a training job in seven ways and see each named
	@scripts/demo.sh

claims: ## the commands of docs/claims.md, each pass, fail or not run; ONLY=c4-matrix,falcon; LONG=1: those over a minute too
	@scripts/claims.py $(if $(ONLY),--only "$(ONLY)") $(if $(LONG),--long)

compare-mpi: ## our collectives beside Open MPI's and MPICH's; ARGS="--ranks 2,4 --markdown" goes to benchmarks/compare_mpi.py
	@scripts/compare_mpi.sh $(ARGS)

readme: ## play the demonstration and put one of its incidents at the head of README.md
	@scripts/readme.sh

gallery: ## docs/failure-gallery.md anew, from the recordings in tests/data/recordings
	@scripts/gallery.sh

test-bare: ## make test in a fresh minimal Debian 12 (needs root)
	@scripts/test_bare.sh

test-vendor: ## the front door before every minor release of NVIDIA's NCCL from 2.24 on (fetches some 2 GB once)
	@scripts/test_vendor.sh

portable: ## the library for images as old as NVIDIA's wheels run on, into build/portable (fetches a compiler once)
	@scripts/portable.sh

package: ## what is handed out, without symbols, Debian packages, the wheel c4-nccl, into build/package; ARGS=--native
	@scripts/package.sh $(ARGS)

test-packages: ## those packages installed, upgraded, removed, purged (needs root); built against; ARGS=--native
	@scripts/test_packages.sh $(ARGS)

test-images: ## c4-install of that package in Debian 12, Ubuntu 20.04 and 18.04, made by debootstrap (needs root)
	@scripts/test_images.sh

test-containers: ## what deploy/Containerfile puts into its images, in a minimal Debian 12 (needs root)
	@scripts/test_containers.sh

test-gpu: ## on a machine with a GPU: what only a GPU can show (tests/gpu/run.sh; docs/gpu-results.md)
	@tests/gpu/run.sh

sbom: ## what is built and what it is built from, as CycloneDX, into build/c4.cdx.json
	@scripts/build.sh release && scripts/sbom.sh

test-rdma: ## the RDMA transport over real verbs, in guests with Soft-RoCE (needs QEMU; fetches a kernel once)
	@scripts/test_rdma.sh $(ARGS)

test-torch: ## the backend c4 of PyTorch in jobs of four ranks; ARGS=--own: its own tests (fetches 3 GB)
	@scripts/test_torch.sh $(ARGS)

asan: ## the tests with the address and undefined-behaviour sanitizers
	@scripts/test.sh asan

tsan: ## the tests of ccl, wire and analysis with the thread sanitizer
	@scripts/test.sh tsan

fuzz: ## each fuzzer for SECONDS (30) seconds
	@scripts/fuzz.sh $(SECONDS)

format: ## format all C++
	@scripts/format.sh

format-check: ## fail when a file is not formatted
	@scripts/format.sh --check

tidy: ## clang-tidy over everything
	@scripts/tidy.sh

tidy-changed: ## clang-tidy over what changed since the parent commit
	@scripts/tidy.sh --changed

clean: ## remove build/
	@rm -rf build
