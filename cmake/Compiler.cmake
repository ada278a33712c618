# Warnings, ccache and the flags that every target shares.

find_program(TIERCEL_CCACHE ccache)
if(TIERCEL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Relative paths in the hash: two checkouts of one commit share their objects.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${TIERCEL_CCACHE})
endif()

add_library(tiercel_flags INTERFACE)
target_compile_features(tiercel_flags INTERFACE cxx_std_20)
target_include_directories(tiercel_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
if(PROJECT_IS_TOP_LEVEL)  # another project chooses its own warnings
  target_compile_options(tiercel_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    -Wno-missing-field-initializers  # designated initialisers leave members out on purpose; every member has a default
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
    $<$<BOOL:${TIERCEL_WERROR}>:-Werror>
    # Tests and programs must not depend on where they were built.
    -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
endif()
