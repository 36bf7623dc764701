# Short names for CMake and Ninja. `make run` and `make test` are all a newcomer needs: tools/deps says what is missing and installs it.
.PHONY: all deps run test test-server test-metal metal-selftest lint fuzz bench install deb dist wheel help clean asan tsan valgrind format
JOBS = 2
PREFIX = /usr/local
PROMPT = Tell me a short story about a fox.
FUZZ_SECONDS = 20
FUZZ_SEED = 0
CMAKE_ARGS =
RELEASE = build/release
INSTALLED = pages ingot_static ingot_shared

all:
	@tools/deps build
	@TARGETS="$(INSTALLED)" tools/build $(RELEASE) $(JOBS) -DCMAKE_BUILD_TYPE=Release -DINGOT_CUDA_OPTIMISE=ON -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_ARGS)

deps: ## install all that building and testing need (INGOT_NO_INSTALL=1: say what)
	@tools/deps build test clients metal lint

run: all ## build, and let the model that ships with ingot answer
	@$(RELEASE)/ingot run -p "$(PROMPT)"

test: ## build and run every test
	@tools/deps build test metal
	@tools/build $(RELEASE) $(JOBS) -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=ON -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_ARGS)
	ctest --test-dir $(RELEASE) --output-on-failure -j $(JOBS)

test-metal: ## build and run the tests of Metal: kernels, device, models on an emulated GPU (docs/metal.md)
	@tools/deps build test metal
	@TARGETS=metal_tests tools/build $(RELEASE) $(JOBS) -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=ON -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_ARGS)
	ctest --test-dir $(RELEASE) --output-on-failure -j $(JOBS) -L metal

metal-selftest: ## on a Mac: the Metal tests on the real GPU, and a report to send in
	@[ "$$(uname -s)" != Darwin ] || tools/deps build test
	@[ "$$(uname -s)" != Darwin ] || tools/build $(RELEASE) $(JOBS) -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=ON $(CMAKE_ARGS)
	@tools/metal_selftest $(RELEASE)

test-server: ## the server's tests and the clients from npm, a part of `make test`
	@tools/deps build test
	@tools/build $(RELEASE) $(JOBS) -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=ON -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_ARGS)
	ctest --test-dir $(RELEASE) --output-on-failure -R 'serve'

lint: ## length, layers, names, banned calls, format
	@tools/deps lint
	tools/lint

fuzz: ## FUZZ_SECONDS of libFuzzer for each parser; FUZZ_SEED=0: another seed each time
	@tools/deps build fuzz
	tools/fuzz $(FUZZ_SECONDS) $(JOBS) $(FUZZ_SEED)

bench: all ## speed of the shipped model, or of MODEL=FILE
	$(RELEASE)/ingot bench $(if $(MODEL),-m $(MODEL))

asan: ## tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/deps build test
	@tools/build build/asan $(JOBS) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DINGOT_SANITIZE=ON $(CMAKE_ARGS)
	ctest --test-dir build/asan --output-on-failure -j $(JOBS)

tsan: ## tests under ThreadSanitizer
	@tools/deps build test
	@tools/build build/tsan $(JOBS) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DINGOT_TSAN=ON $(CMAKE_ARGS)
	ctest --test-dir build/tsan --output-on-failure -j $(JOBS)

valgrind: ## tests under valgrind
	@tools/deps build test valgrind
	@tools/build build/valgrind $(JOBS) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DINGOT_VALGRIND=ON $(CMAKE_ARGS)
	ctest --test-dir build/valgrind --output-on-failure -j $(JOBS)

install: all ## into PREFIX (default /usr/local), below DESTDIR if set
	cmake --install $(RELEASE) --prefix $(PREFIX)

deb: ## a Debian package in build/deb, for the system that it is built on
	@tools/deps build deb
	@TARGETS="$(INSTALLED)" tools/build build/deb $(JOBS) -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DINGOT_WERROR=OFF -DINGOT_MPI=OFF -DCMAKE_INSTALL_PREFIX=/usr $(CMAKE_ARGS)
	cd build/deb && cpack

dist: ## the last commit as a release tarball in build/dist, with its SHA-256 and a Homebrew formula (URL=where it will lie)
	tools/dist $(URL)

wheel: all ## a wheel of the Python package, in the build folder
	@python3 packaging/python/build_backend.py $(firstword $(wildcard $(RELEASE)/libingot.so $(RELEASE)/libingot.dylib)) $(RELEASE)

format: ## clang-format every source
	@tools/deps lint
	tools/format

clean: ## remove the build folder
	rm -rf build

help: ## this list
	@grep -E '^[a-z-]+:.* ## ' Makefile | sed -e 's/:.* ## /	/' | expand -t 16
