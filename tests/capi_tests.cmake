# The C ABI from outside: a program in C11 that makes every call, what the library exports, what `cmake --install` gives.
enable_language(C)
add_executable(capi_whole_abi capi_whole_abi.c)
set_target_properties(capi_whole_abi PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF LINKER_LANGUAGE CXX)
target_compile_options(capi_whole_abi PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow $<$<BOOL:${TIERCEL_WERROR}>:-Werror>)
target_compile_definitions(capi_whole_abi PRIVATE _POSIX_C_SOURCE=200809L)
target_link_libraries(capi_whole_abi PRIVATE tiercel::tiercel)
add_test(NAME capi.whole_abi COMMAND capi_whole_abi)
add_test(NAME capi.abi
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/capi_abi.py ${CMAKE_C_COMPILER} $<TARGET_FILE:tiercel_shared>)
add_test(NAME capi.install
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/capi_install.py ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR}
    ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
set_tests_properties(capi.whole_abi capi.abi capi.install PROPERTIES TIMEOUT 300 LABELS capi)
# A program with a cache inside that is killed, and the next one on the same file.
add_executable(capi_survivor capi_survivor.cc)
target_link_libraries(capi_survivor PRIVATE tiercel::tiercel tiercel_flags)
add_test(NAME capi.kills
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/capi_kills.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
add_test(NAME capi.kills_long
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/capi_kills.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} --kills 2000 --seed 7)
set_tests_properties(capi.kills PROPERTIES TIMEOUT 600 LABELS capi)
set_tests_properties(capi.kills_long PROPERTIES TIMEOUT 7200 LABELS "capi;long")
