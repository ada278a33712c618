# tiercel.hpp compiles alone, like every header.
set(LONE_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/alone/tiercel_hpp.cc)
file(CONFIGURE OUTPUT ${LONE_SOURCE} CONTENT "#include <tiercel/tiercel.hpp>\n#include <tiercel/tiercel.hpp>\n")
add_library(hpp_headers_alone OBJECT EXCLUDE_FROM_ALL ${LONE_SOURCE})
target_link_libraries(hpp_headers_alone PRIVATE tiercel_flags)
add_dependencies(headers_alone hpp_headers_alone)

# The C ABI in the call order of three engines, none of which is installed: engine_*.cc, one program, through tiercel.hpp and
# the shared library, as a user has them.
file(GLOB ENGINES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/engine_*.cc)
if(ENGINES)
  tiercel_test_program(engine_test unit.engine SOURCES ${ENGINES} LIBRARIES tiercel_flags tiercel::tiercel)
endif()
