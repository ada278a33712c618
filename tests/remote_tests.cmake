# What the remote tier is tested with: a connector that misbehaves on demand and a writer that is killed, both
# started by remote_test, and the contract of a store as a program, for connectors in any language.
add_executable(remote_test_connector remote_test_connector.cc)
target_link_libraries(remote_test_connector PRIVATE tiercel_remote nlohmann_json::nlohmann_json fmt::fmt)
add_executable(remote_test_victim remote_test_victim.cc)
target_link_libraries(remote_test_victim PRIVATE tiercel_remote fmt::fmt)
add_dependencies(remote_test remote_test_connector remote_test_victim)

add_executable(remote_conformance remote_conformance.cc)
target_link_libraries(remote_conformance PRIVATE tiercel_remote GTest::gtest fmt::fmt)
add_test(NAME remote.conformance
  COMMAND remote_conformance --connector $<TARGET_FILE:remote_test_connector> --forgets --own-objects)
set_tests_properties(remote.conformance PROPERTIES TIMEOUT 300 LABELS remote)

# Two nodes over real servers, and every process between them killed and stopped. Their program is the example's.
add_test(NAME remote.kills
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/remote_node_kills.py $<TARGET_FILE:cluster_node>)
set_tests_properties(remote.kills PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77 LABELS remote)
add_test(NAME remote.conformance_faults
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/remote_conformance_faults.py $<TARGET_FILE:remote_conformance>)
set_tests_properties(remote.conformance_faults PROPERTIES TIMEOUT 300 LABELS remote)
