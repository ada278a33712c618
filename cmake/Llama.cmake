# With TIERCEL_WITH_LLAMA: the target tiercel::llama, llama.cpp's library and headers. It is built by tools/llama.sh, once a machine and
# outside the build tree; whoever configures first waits for that. TIERCEL_LLAMA_PREFIX: where it is, or one of your own.
# Inside a project that has a target `llama`, that is the one.
#
# The environment's TIERCEL_WITH_LLAMA=OFF goes before every preset, so that it holds for all the builds of one `make test`.
set(TIERCEL_LLAMA_PREFIX "" CACHE PATH "Folder with llama.cpp's include and lib; empty: the place that tools/llama.sh chooses")
if("$ENV{TIERCEL_WITH_LLAMA}" STREQUAL "OFF")
  set(TIERCEL_WITH_LLAMA OFF CACHE BOOL "Off by the environment" FORCE)
  set(TIERCEL_WITH_LLAMA OFF)
endif()
if(NOT TIERCEL_WITH_LLAMA)
  return()
endif()

add_library(tiercel_llama INTERFACE)
add_library(tiercel::llama ALIAS tiercel_llama)
if(TARGET llama)
  target_link_libraries(tiercel_llama INTERFACE llama)
  return()
endif()

set(LLAMA_ENVIRONMENT)
if(TIERCEL_LLAMA_PREFIX)
  set(LLAMA_ENVIRONMENT TIERCEL_LLAMA_PREFIX=${TIERCEL_LLAMA_PREFIX})
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -E env ${LLAMA_ENVIRONMENT} ${PROJECT_SOURCE_DIR}/tools/llama.sh
  OUTPUT_VARIABLE LLAMA_PREFIX OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE LLAMA_FAILED)
if(LLAMA_FAILED)
  message(FATAL_ERROR "There is no llama.cpp to build with; the reason stands above.\n"
    "Without it: cmake -DTIERCEL_WITH_LLAMA=OFF, or TIERCEL_WITH_LLAMA=OFF make")
endif()
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/llama.sh)

target_include_directories(tiercel_llama SYSTEM INTERFACE ${LLAMA_PREFIX}/include)
set(LLAMA_CODE)
foreach(LIBRARY llama ggml ggml-cpu ggml-base)  # each needs those after it
  target_link_libraries(tiercel_llama INTERFACE ${LLAMA_PREFIX}/lib/lib${LIBRARY}.a)
  file(SHA256 ${LLAMA_PREFIX}/lib/lib${LIBRARY}.a HASH)
  string(APPEND LLAMA_CODE ${HASH})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${LLAMA_PREFIX}/lib/lib${LIBRARY}.a)
endforeach()
# Other code computes other bits: part of what separates one cache's content from another's.
string(SHA256 LLAMA_CODE ${LLAMA_CODE})
target_compile_definitions(tiercel_llama INTERFACE TIERCEL_LLAMA_BUILD="${LLAMA_CODE}")
target_link_libraries(tiercel_llama INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
