# The stages of `make test` that need another build or no build: they are ctest tests of the `dev` build, so that one run has one summary.
#
# A stage that builds is a ctest fixture named after its preset and claims every core; what runs its programs requires that fixture.
# Other builds stand beside this one (build/dev → build/asan). No stage builds what another has built:
#   asan      clang-16, everything, with thread-safety analysis as errors: this is also the "does clang accept it" stage
#   tsan      clang-16, only test programs that have threads (TIERCEL_THREADED below)
#   release   g++-12 -O2, the programs that users run
# Label `long`: only `make test-long`.

# Test programs that start threads; the rest has nothing that ThreadSanitizer could see.
set(TIERCEL_THREADED os_test device_test transfer_test node_test sim_test cross_test)

cmake_host_system_information(RESULT TIERCEL_CORES QUERY NUMBER_OF_LOGICAL_CORES)
get_filename_component(TIERCEL_BUILDS ${CMAKE_BINARY_DIR} DIRECTORY)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# tiercel_build_stage(PRESET [TARGETS target...]): configures and builds a preset; fixture PRESET.
function(tiercel_build_stage PRESET)
  cmake_parse_arguments(ARG "" "" "TARGETS;LABELS" ${ARGN})
  list(JOIN ARG_TARGETS "," TARGETS)
  add_test(NAME ${PRESET}.build
    COMMAND ${CMAKE_COMMAND} -DPRESET=${PRESET} -DBUILD=${TIERCEL_BUILDS}/${PRESET} -DTARGETS=${TARGETS}
      -DJOBS=${TIERCEL_CORES} -P ${CMAKE_SOURCE_DIR}/cmake/BuildStage.cmake
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${PRESET}.build PROPERTIES
    FIXTURES_SETUP ${PRESET} PROCESSORS ${TIERCEL_CORES} TIMEOUT 3600 LABELS "build;${ARG_LABELS}")
endfunction()

# tiercel_preset_test(PRESET NAME COMMAND program [argument...] [TIMEOUT seconds] [LABELS label...])
# ctest `PRESET.NAME`: runs a program of that preset's build.
function(tiercel_preset_test PRESET NAME)
  cmake_parse_arguments(ARG "" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  list(POP_FRONT ARG_COMMAND PROGRAM)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  add_test(NAME ${PRESET}.${NAME} COMMAND ${TIERCEL_BUILDS}/${PRESET}/bin/${PROGRAM} ${ARG_COMMAND})
  set_tests_properties(${PRESET}.${NAME} PROPERTIES
    FIXTURES_REQUIRED ${PRESET} TIMEOUT ${ARG_TIMEOUT} LABELS "${PRESET};${ARG_LABELS}"
    ENVIRONMENT "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:detect_leaks=1;UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1;TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")
endfunction()

# tiercel_tool_test(NAME SCRIPT [argument...]): ctest NAME runs a tool from tools/ on this source tree.
function(tiercel_tool_test NAME SCRIPT)
  add_test(NAME ${NAME} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/${SCRIPT} ${ARGN}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT 300 LABELS check)
endfunction()

get_property(PROGRAMS GLOBAL PROPERTY TIERCEL_TEST_PROGRAMS)
get_property(FUZZERS GLOBAL PROPERTY TIERCEL_FUZZERS)

tiercel_build_stage(asan)
foreach(PROGRAM ${PROGRAMS})
  string(REGEX REPLACE "_test$" "" NAME ${PROGRAM})
  tiercel_preset_test(asan unit.${NAME} COMMAND ${PROGRAM})
endforeach()
foreach(FUZZER ${FUZZERS})
  tiercel_preset_test(asan fuzz_corpus.${FUZZER} COMMAND ${FUZZER}_fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz_corpus/${FUZZER})
endforeach()

set(THREADED)
foreach(PROGRAM ${TIERCEL_THREADED})
  if(PROGRAM IN_LIST PROGRAMS)
    list(APPEND THREADED ${PROGRAM})
    string(REGEX REPLACE "_test$" "" NAME ${PROGRAM})
    tiercel_preset_test(tsan unit.${NAME} COMMAND ${PROGRAM})
  endif()
endforeach()
if(THREADED)
  tiercel_build_stage(tsan TARGETS ${THREADED})
endif()

tiercel_build_stage(release TARGETS programs)

# clang-tidy reads the compile commands of the preset `clang`, which is only configured here.
add_test(NAME clang.configure
  COMMAND ${CMAKE_COMMAND} --preset clang -B ${TIERCEL_BUILDS}/clang --log-level=WARNING
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(clang.configure PROPERTIES FIXTURES_SETUP clang TIMEOUT 300 LABELS build)
tiercel_tool_test(tidy.changed run_tidy.py --build ${TIERCEL_BUILDS}/clang --jobs ${TIERCEL_CORES})
tiercel_tool_test(tidy.all run_tidy.py --build ${TIERCEL_BUILDS}/clang --jobs ${TIERCEL_CORES} --all)
set_tests_properties(tidy.changed tidy.all PROPERTIES
  FIXTURES_REQUIRED clang PROCESSORS ${TIERCEL_CORES} RESOURCE_LOCK tidy TIMEOUT 3600)
set_tests_properties(tidy.all PROPERTIES LABELS "check;long")

add_test(NAME check.headers COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target headers_alone)
set_tests_properties(check.headers PROPERTIES PROCESSORS ${TIERCEL_CORES} TIMEOUT 900 LABELS check)
tiercel_tool_test(check.layers check_layers.py)
tiercel_tool_test(check.links check_links.py)
tiercel_tool_test(check.text check_text.py)
tiercel_tool_test(check.sizes check_sizes.py)
tiercel_tool_test(check.glossary check_glossary.py)
tiercel_tool_test(tools.selftest selftest.py)
add_test(NAME check.format COMMAND ${CMAKE_SOURCE_DIR}/tools/check_format.sh WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(check.format PROPERTIES TIMEOUT 300 LABELS check)

# Fuzzing for a minute each, from the committed corpus.
if(FUZZERS)
  tiercel_build_stage(fuzz TARGETS fuzzers LABELS long)
  foreach(FUZZER ${FUZZERS})
    tiercel_preset_test(fuzz ${FUZZER} LABELS long COMMAND ${FUZZER}_fuzz -max_total_time=60 -timeout=10 -print_final_stats=1
      ${TIERCEL_BUILDS}/fuzz/${FUZZER}_found ${CMAKE_SOURCE_DIR}/tests/fuzz_corpus/${FUZZER})
    file(MAKE_DIRECTORY ${TIERCEL_BUILDS}/fuzz/${FUZZER}_found)
  endforeach()
endif()
