# On a machine with Python and make, two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
JOBS ?= 2
comma := ,

# The machine's compiler or, if there is none, that of the `ziglang` package.
COMPILER := $(shell command -v c++ || command -v g++ || command -v clang++)
ifeq ($(COMPILER),)
ZIG := $(VENV)/.zig
export SPLINEFM_ZIG := 1
TOOLCHAIN := -DCMAKE_TOOLCHAIN_FILE=cmake/zig.cmake
endif
CONFIGURE = $(BIN)/cmake -G Ninja -S . --log-level=WARNING $(TOOLCHAIN) \
  -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)

.DEFAULT_GOAL := help
.PHONY: help demo test campaign distributed test-isa test-paper check coverage docs format stub native wheel wheel-try wheel-test oldest \
  licenses audit sanitize fuzz fuzz-coverage clean paper-quick

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

demo: native  ## set up, then compare bins and splines on built-in data: a table, a plot, a model
	$(BIN)/splinefm demo --out build/demo

# Keep bytecode whatever the environment says: otherwise each process that a test starts compiles the package.
# Each of the two processes has one core: threads of BLAS, torch or faiss would wait for each other.
test: native $(VENV)/.test $(if $(TORCH),$(VENV)/.torch) $(if $(DISTRIBUTED),$(VENV)/.distributed)  ## set up, then run all tests of the package (TORCH=1: also against torch; DISTRIBUTED=1: also on several processes; THOROUGH=1: more examples; TESTS="tests/native ...": some)
	PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(if $(THOROUGH),SPLINEFM_THOROUGH=1) $(BIN)/python -m pytest --numprocesses 2 --dist worksteal --ignore tests/paper $(TESTS)

distributed: native $(VENV)/.distributed  ## set up what several processes need: torch, TorchRec and FBGEMM for CPUs

test-paper: native $(VENV)/.test  ## test the experiments in paper/
	$(if $(THOROUGH),SPLINEFM_THOROUGH=1) $(BIN)/python -m pytest --numprocesses 2 tests/paper

campaign: native $(VENV)/.test  ## run one campaign: make campaign NAME=files ARGS="--long" (docs/reliability.md has their names)
	$(if $(NAME),,$(error NAME=... is missing: one of $(sort $(filter-out test_% [_]%,$(basename $(notdir $(wildcard tests/campaigns/[a-z]*.py)))))))
	PYTHONPATH=src:tests $(BIN)/python tests/campaigns/$(NAME).py $(ARGS)

# Ninja detects what changed under cpp/; if nothing did, this takes a tenth of a second.
native: build/native/build.ninja  ## build the module from cpp/ into src/splinefm
	@$(BIN)/cmake --build build/native --parallel $(JOBS) -- --quiet

check: $(VENV)/.test build/check/build.ninja  ## format, lint, types, spelling, compiler warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell $$(git ls-files)
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'cpp/*.?pp' 'cpp/*.h' 'examples/*.c')
	$(BIN)/cmake --build build/check --parallel $(JOBS) -- --quiet

# Nothing is fetched: fonts are the system's, and search works from disk.
docs: $(VENV)/.docs  ## build the documentation into build/docs; open build/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo build/docs/index.html

coverage: native $(VENV)/.test  ## run the tests and report the coverage of the Python code
	PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(if $(THOROUGH),SPLINEFM_THOROUGH=1) $(BIN)/python -m pytest -q --numprocesses 2 --dist worksteal --ignore tests/paper \
	  --cov --cov-report=term --cov-report=html:build/coverage

format: $(VENV)/.test  ## let ruff and clang-format rewrite the files
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $$(git ls-files 'cpp/*.?pp' 'cpp/*.h' 'examples/*.c')

stub: native $(VENV)/.test  ## write the types of the compiled module to src/splinefm/_core.pyi
	$(BIN)/python -m nanobind.stubgen --quiet --module splinefm._core --pattern-file cpp/bindings/stub.patterns --output-file src/splinefm/_core.pyi

# Built from the source distribution in an environment of its own, as by an installer. The compiler is Zig's, which can
# build for an old C library on a new machine; WHEEL_ZIG= takes the machine's, for wheels that need one as new as its own.
# Another Python: make wheel PYTHON=python3.12 VENV=build/python3.12
WHEEL_ZIG ?= $(filter Linux,$(shell uname -s))
BUILT := build/wheels/$(notdir $(VENV))
PACKAGED := $(shell find cpp cmake licenses src/splinefm -type f -not -name '*.so' -not -name '*.pyc') CMakeLists.txt LICENSE README.md

wheel: $(BUILT)/.done  ## build the source distribution and, from it, a wheel that runs on any Linux into dist/
	@mkdir -p dist
	cp $(BUILT)/*.whl $(BUILT)/*.tar.gz dist/
	@ls -l dist

$(BUILT)/.done: pyproject.toml $(PACKAGED) | $(VENV)/.release
	rm -rf $(BUILT)
	PIP_CONSTRAINT=$(abspath constraints.txt) SPLINEFM_ZIG=$(if $(WHEEL_ZIG),1) CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) \
	  $(BIN)/python -m build --outdir $(BUILT)/raw .
	$(if $(filter Linux,$(shell uname -s)),PATH=$(abspath $(BIN)):$$PATH $(BIN)/auditwheel repair --wheel-dir $(BUILT) $(BUILT)/raw/*.whl,cp $(BUILT)/raw/*.whl $(BUILT))
	mv $(BUILT)/raw/*.tar.gz $(BUILT)
	touch $@

try = $(BIN)/python release/try_wheel.py $(BUILT)/*.whl --python $(BIN)/python --folder build/$1

wheel-try: $(BUILT)/.done  ## install the wheel into an empty environment without a compiler, and run the demo there
	$(call try,wheel-try)

wheel-test: $(BUILT)/.done  ## the same, then run the tests that need no source against it (TESTS="tests/native ...": some)
	$(call try,wheel-test) --tests $(TESTS)

oldest: $(BUILT)/.done  ## the same with the oldest versions that pyproject.toml allows
	$(call try,oldest) --constraints constraints-oldest.txt --tests $(TESTS)

licenses: $(VENV)/.distributed  ## write the licenses of what the package needs and holds to docs/licenses.md
	$(BIN)/python release/licenses.py > build/licenses.md && mv build/licenses.md docs/licenses.md

audit:  ## ask for known vulnerabilities of the pinned versions (needs the network)
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip --disable-pip-version-check install --quiet pip-audit
	build/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

test-isa: native $(VENV)/.test  ## test the kernels on each instruction set that the machine has
	for isa in $$(PYTHONPATH=src $(BIN)/python -c 'from splinefm import _core; print(*_core.isas)'); do \
	  echo "SPLINEFM_ISA=$$isa"; \
	  SPLINEFM_ISA=$$isa $(BIN)/python -m pytest -q --numprocesses 2 --dist worksteal $(KERNEL_TESTS) || exit 1; \
	done

KERNEL_TESTS := tests/native tests/model tests/serve/test_scorer.py tests/serve/test_same_bits.py tests/inspect/test_explain.py tests/rank

sanitize: sanitize-address sanitize-thread  ## test the loops with sanitizers (needs GCC and its sanitizers)

sanitize-%: native $(VENV)/.test
	$(if $(wildcard $(call runtime,$*)),$(call sanitized,$*),@echo "sanitize-$*: skipped, lib$(call letter,$*)san.so not found (compiler: $(or $(COMPILER),none))")

letter = $(if $(filter address,$1),a,t)
runtime = $(if $(COMPILER),$(shell $(COMPILER) -print-file-name=lib$(call letter,$1)san.so))

sanitized-%: native $(VENV)/.test  ## build the package with sanitizers, for tests/campaigns/*.py --sanitize
	$(call build_sanitized,$*)

# Threads behave the same on every instruction set: testing the slowest is enough. The address sanitizer runs tests on the
# machine's best one and on the slowest.
define build_sanitized
	$(CONFIGURE) -B build/$1 -DCMAKE_BUILD_TYPE=Sanitize -DCMAKE_CXX_FLAGS=-O1 \
	  -DSPLINEFM_SANITIZE=$(if $(filter address,$1),address$(comma)undefined,$1) \
	  -DSPLINEFM_ISAS="$$(PYTHONPATH=src $(BIN)/python -c 'from splinefm import _core; print(*dict.fromkeys((_core.isas[0], _core.isas[$(if $(filter thread,$1),0,-1)])), sep=";")')" \
	  -DSPLINEFM_OUTPUT=$(abspath build/$1/package/splinefm)
	rm -rf build/$1/package build/$1/reports
	mkdir -p build/$1/package build/$1/reports
	cp -r src/splinefm build/$1/package/
	rm -f build/$1/package/splinefm/_core*.so
	$(BIN)/cmake --build build/$1 --parallel $(JOBS) -- --quiet
endef

define sanitized
	$(call build_sanitized,$1)
	$(call on_sanitized,$1,$(SANITIZED_$1))
	$(if $(filter address,$1),SPLINEFM_ISA=baseline $(call on_sanitized,$1,$(SANITIZED_baseline)))
	$(if $(filter address,$1),SPLINEFM_THOROUGH=1 $(call on_sanitized,$1,tests/campaigns/test_short_campaigns.py -k test_files))
endef

# The package is copied next to the module and found before the one in src/. Python itself is not sanitized, hence
# LD_PRELOAD. A finding ends the process; its report goes to a file, because tests capture the standard error of their
# children. The sanitizer for undefined behavior cannot write files: hence --capture=sys.
# OpenBLAS threads would look like races to the thread sanitizer, which does not see how they synchronize.
on_sanitized = OPENBLAS_NUM_THREADS=1 PYTHONPATH=$(abspath build/$1/package) SPLINEFM_SANITIZED=$1 \
  ASAN_OPTIONS=detect_leaks=0:log_path=$(abspath build/$1/reports)/a UBSAN_OPTIONS=print_stacktrace=1 \
  TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:log_path=$(abspath build/$1/reports)/t:suppressions=$(abspath cpp/thread.suppressions) \
  LD_PRELOAD="$(call runtime,$1) $$($(COMPILER) -print-file-name=libstdc++.so)" \
  $(BIN)/python -m pytest -q -p no:cacheprovider --capture=sys --numprocesses $(JOBS) --dist worksteal $2; \
  status=$$?; if cat build/$1/reports/* 2>/dev/null; then exit 1; fi; exit $$status

# Left out: a test that is slow because of the shap package and, with threads, one that runs the threads of torch.
SANITIZED_address := $(KERNEL_TESTS) tests/encode/test_loops.py tests/encode/fields/test_fields.py tests/encode/transforms/test_sketch.py \
  tests/encode/test_encoder.py tests/export/test_scorer_file.py --deselect tests/inspect/test_explain.py::test_shapley_values_equal_those_of_the_shap_package
SANITIZED_baseline := tests/model/test_engine.py tests/native/test_engine_border.py tests/native/test_explain_terms.py
SANITIZED_thread := tests/native tests/model/test_engine.py tests/serve/test_scorer.py tests/inspect/test_explain.py \
  tests/rank/test_index.py tests/encode/test_encoder.py -k 'native or test_engine or thread or TestEveryModel' \
  --deselect tests/model/test_engine.py::TestCpuEngine::test_a_whole_gradient_is_that_of_automatic_differentiation

fuzz: native $(VENV)/.test  ## open changed scorer files with sanitizers for SECONDS (60 by default)
	$(CONFIGURE) -B build/fuzz -DSPLINEFM_PYTHON=OFF -DCMAKE_BUILD_TYPE=Sanitize -DCMAKE_CXX_FLAGS=-O1 \
	  -DSPLINEFM_SANITIZE=address$(comma)undefined -DSPLINEFM_ISAS=baseline
	$(BIN)/cmake --build build/fuzz --parallel $(JOBS) -- --quiet
	SPLINEFM_FUZZ_SECONDS=$(or $(SECONDS),60) $(BIN)/python -m pytest -q -s -p no:cacheprovider tests/native/test_fuzz.py

# Coverage-guided: tests/campaigns/fuzz.py runs what this builds. Clang alone has libFuzzer.
CLANG := $(firstword $(foreach name,clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14,$(shell command -v $(name))))
fuzz-coverage: $(VENV)/.ready  ## build the fuzzers of the C library with libFuzzer (needs Clang)
	$(if $(CLANG),,$(error no Clang found; `apt install clang` has libFuzzer))
	$(BIN)/cmake -G Ninja -S . --log-level=WARNING -B build/coverage-fuzz -DCMAKE_CXX_COMPILER=$(CLANG) \
	  -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DSPLINEFM_PYTHON=OFF -DCMAKE_BUILD_TYPE=Sanitize -DCMAKE_CXX_FLAGS=-O1 \
	  -DSPLINEFM_SANITIZE=address$(comma)undefined$(comma)fuzzer-no-link -DSPLINEFM_ISAS=baseline
	$(BIN)/cmake --build build/coverage-fuzz --parallel $(JOBS) --target fuzz_coverage_file fuzz_coverage_rows fuzz_coverage_json -- --quiet

paper-quick: native $(VENV)/.test  ## run every experiment of paper/ with reduced settings (DATA=folder: read data there instead of downloading)
	for name in synthetic tabular criteo ab; do \
	  $(BIN)/python -m paper.$$name.run --quick $(if $(DATA),--data $(DATA)) || exit 1; \
	done

clean:  ## remove the environment, the compiled module and caches
	rm -rf $(VENV) build dist .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f src/splinefm/_core*.so

# One stamp per stage: a later stage adds packages to the same environment.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The package itself is read from src/ through a .pth file, which PYTHONPATH overrides.
$(VENV)/.ready: $(VENV)/bin/python pyproject.toml constraints.txt
	SPLINEFM_FROM_SRC=1 SPLINEFM_ZIG= $(PIP) '.[plots,build]'
	echo "$(abspath src)" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/splinefm-src.pth"
	touch $@

$(VENV)/.zig: $(VENV)/.ready
	$(PIP) ziglang
	touch $@

$(VENV)/.test: $(VENV)/.ready
	SPLINEFM_FROM_SRC=1 SPLINEFM_ZIG= $(PIP) '.[all,dev]'
	touch $@

$(VENV)/.release: $(VENV)/.ready
	SPLINEFM_FROM_SRC=1 SPLINEFM_ZIG= $(PIP) '.[release]'
	touch $@

$(VENV)/.docs: $(VENV)/.ready
	SPLINEFM_FROM_SRC=1 SPLINEFM_ZIG= $(PIP) '.[docs]'
	touch $@

$(VENV)/.torch: $(VENV)/.test
	$(PIP) torch==2.13.0
	touch $@

# TorchRec asks for the CUDA package of FBGEMM; here is that for CPUs.
$(VENV)/.distributed: $(VENV)/.torch
	SPLINEFM_FROM_SRC=1 SPLINEFM_ZIG= $(PIP) '.[distributed]'
	$(PIP) --no-deps torchrec==1.8.0 fbgemm-gpu-cpu==1.8.0
	touch $@

build/native/build.ninja: $(VENV)/.ready $(ZIG)
	$(CONFIGURE) -B build/native -DSPLINEFM_OUTPUT=$(abspath src/splinefm)

build/check/build.ninja: $(VENV)/.ready $(ZIG)
	$(CONFIGURE) -B build/check -DSPLINEFM_STRICT=ON -DCMAKE_BUILD_TYPE=Debug
