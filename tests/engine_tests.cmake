# tiercel.hpp compiles alone, like every header.
set(LONE_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/alone/tiercel_hpp.cc)
file(CONFIGURE OUTPUT ${LONE_SOURCE} CONTENT "#include <tiercel/tiercel.hpp>\n#include <tiercel/tiercel.hpp>\n")

# So does the C++ of the guide, inside a function.
set(GUIDE ${PROJECT_SOURCE_DIR}/docs/guide/embedding.md)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${GUIDE})
file(READ ${GUIDE} GUIDE_TEXT)
string(REGEX MATCH "```cpp\n([^`]*)```" GUIDE_CODE "${GUIDE_TEXT}")
set(GUIDE_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/alone/embedding_md.cc)
file(CONFIGURE OUTPUT ${GUIDE_SOURCE} CONTENT "#include <tiercel/tiercel.hpp>
void give_up(const tiercel::Status&);
void compute(std::uint64_t from, std::uint64_t to);
void request(tiercel::Namespace&, std::span<const std::uint32_t>, std::span<const tiercel_load_target>,
             std::span<const tiercel_store_item>, std::uint64_t);
void request(tiercel::Namespace& ns, std::span<const std::uint32_t> prompt, std::span<const tiercel_load_target> targets,
             std::span<const tiercel_store_item> items, std::uint64_t second) {
${CMAKE_MATCH_1}}
")
add_library(hpp_headers_alone OBJECT EXCLUDE_FROM_ALL ${LONE_SOURCE} ${GUIDE_SOURCE})
target_link_libraries(hpp_headers_alone PRIVATE tiercel_flags)
add_dependencies(headers_alone hpp_headers_alone)

# The C ABI in the call order of three engines, none of which is installed: engine_*.cc, one program, through tiercel.hpp and
# the shared library, as a user has them.
file(GLOB ENGINES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/engine_*.cc)
if(ENGINES)
  tiercel_test_program(engine_test unit.engine SOURCES ${ENGINES} LIBRARIES tiercel_flags tiercel::tiercel)
endif()
