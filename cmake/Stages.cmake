# Functions that register the stages of `make test` which need another build or no build. They are ctest tests of the `dev` build,
# so that one run has one summary; tests/CMakeLists.txt says which there are.
#
# A stage that builds is a ctest fixture named after its preset and claims every core; what runs its programs requires that fixture.
# Other builds stand beside this one (build/dev, build/asan). Label `long`: only `make test-long`.

cmake_host_system_information(RESULT TIERCEL_CORES QUERY NUMBER_OF_LOGICAL_CORES)
get_filename_component(TIERCEL_BUILDS ${PROJECT_BINARY_DIR} DIRECTORY)

# tiercel_build_stage(PRESET [TARGETS target...]): configures and builds a preset; fixture PRESET.
function(tiercel_build_stage PRESET)
  cmake_parse_arguments(ARG "" "" "TARGETS;LABELS" ${ARGN})
  list(JOIN ARG_TARGETS "," TARGETS)
  add_test(NAME ${PRESET}.build
    COMMAND ${CMAKE_COMMAND} -DPRESET=${PRESET} -DBUILD=${TIERCEL_BUILDS}/${PRESET} -DTARGETS=${TARGETS}
      -DJOBS=${TIERCEL_CORES} -P ${PROJECT_SOURCE_DIR}/cmake/BuildStage.cmake
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${PRESET}.build PROPERTIES
    FIXTURES_SETUP ${PRESET} PROCESSORS ${TIERCEL_CORES} TIMEOUT 3600 LABELS "build;${ARG_LABELS}")
endfunction()

# tiercel_preset_test(PRESET NAME COMMAND program [argument...] [TIMEOUT seconds] [LABELS label...])
# ctest `PRESET.NAME`: runs a program of that preset's build.
function(tiercel_preset_test PRESET NAME)
  cmake_parse_arguments(ARG "" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  list(POP_FRONT ARG_COMMAND PROGRAM)
  add_test(NAME ${PRESET}.${NAME} COMMAND ${TIERCEL_BUILDS}/${PRESET}/bin/${PROGRAM} ${ARG_COMMAND})
  tiercel_sanitized(${PRESET} ${NAME} "${ARG_TIMEOUT}" "${ARG_LABELS}")
endfunction()

# The same for a Python script that is told where that build's programs are.
function(tiercel_script_test PRESET NAME SCRIPT)
  add_test(NAME ${PRESET}.${NAME} COMMAND ${Python3_EXECUTABLE} ${SCRIPT} ${TIERCEL_BUILDS}/${PRESET}/bin)
  tiercel_sanitized(${PRESET} ${NAME} "" "cli")
endfunction()

function(tiercel_sanitized PRESET NAME TIMEOUT LABELS)
  if(NOT TIMEOUT)
    set(TIMEOUT 900)
  endif()
  set_tests_properties(${PRESET}.${NAME} PROPERTIES
    FIXTURES_REQUIRED ${PRESET} TIMEOUT ${TIMEOUT} LABELS "${PRESET};${LABELS}"
    # A sanitized program is slow enough with tiny models.
    ENVIRONMENT "TIERCEL_REAL_MODEL=;ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:detect_leaks=1;\
UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1;\
TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1;\
TIERCEL_LARGE_TEST_BYTES=67108864")
endfunction()

# tiercel_tool_test(NAME SCRIPT [argument...]): ctest NAME runs a tool from tools/ on this source tree.
function(tiercel_tool_test NAME SCRIPT)
  add_test(NAME ${NAME} COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/${SCRIPT} ${ARGN}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT 300 LABELS check)
endfunction()
