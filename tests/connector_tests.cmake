# The connectors in Python (connectors/): their base, each one with its real servers on 127.0.0.1, and the contract over them. What needs
# packages from outside (tools/connectors.sh) is left out where they cannot be had; such a test says why and is counted as skipped.
file(GLOB CONNECTORS CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} connectors_*.py)
list(REMOVE_ITEM CONNECTORS connectors_conformance.py)
foreach(SCRIPT ${CONNECTORS})
  string(REGEX REPLACE "^connectors_(.*)\\.py$" "connectors.\\1" NAME ${SCRIPT})
  add_test(NAME ${NAME} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/${SCRIPT})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77 LABELS connectors)
endforeach()
# An engine's own host pools: through the C ABI.
set_tests_properties(connectors.owned PROPERTIES ENVIRONMENT TIERCEL_LIBRARY=$<TARGET_FILE:tiercel_shared>)

if(TARGET remote_conformance)
  foreach(CONNECTOR memory valkey mooncake mooncake_metadata mooncake_dummy)
    add_test(NAME connectors.contract_${CONNECTOR}
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/connectors_conformance.py $<TARGET_FILE:remote_conformance> ${CONNECTOR})
    set_tests_properties(connectors.contract_${CONNECTOR} PROPERTIES TIMEOUT 850 SKIP_RETURN_CODE 77 LABELS connectors)
  endforeach()
  # Objects of 1 GiB.
  foreach(CONNECTOR memory mooncake)
    add_test(NAME connectors.gibibyte_${CONNECTOR}
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/connectors_conformance.py $<TARGET_FILE:remote_conformance> ${CONNECTOR}
        --gtest_filter=*Gibibyte*)
    set_tests_properties(connectors.gibibyte_${CONNECTOR} PROPERTIES ENVIRONMENT TIERCEL_LONG_TESTS=1 TIMEOUT 850
      SKIP_RETURN_CODE 77 LABELS "connectors;long")
  endforeach()
endif()
