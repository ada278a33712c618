# The simulator: fixed seeds with every counter met, seeds nobody has seen, deliberate faults, the library's own objects.
set(SIMULATOR_CHECK ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/simulator_check.py)
set(BIN ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})

add_test(NAME sim.seeds COMMAND tiercel-sim --seeds 1:200 --all-counters)
add_test(NAME sim.fresh COMMAND tiercel-sim --fresh 20)
add_test(NAME sim.long COMMAND tiercel-sim --seeds 1001:1010 --steps 3000)
# Snapshots far down chains of which nothing else is known: seed 223 once asked too much of the index.
add_test(NAME sim.state_disk COMMAND tiercel-sim --seeds 201:260 --spec state_disk)
# Snapshots of pages that only the disk has.
add_test(NAME sim.full_state_disk COMMAND tiercel-sim --seeds 201:240 --spec full_state_disk)
# A store that others use, too: shards of two computations are met in models with shards.
add_test(NAME sim.hybrid_remote COMMAND tiercel-sim --seeds 201:230 --spec hybrid_remote --counter remote_mixed_shards)
add_test(NAME sim.full_disk_remote COMMAND tiercel-sim --seeds 201:230 --spec full_disk_remote)
add_test(NAME sim.faults COMMAND ${SIMULATOR_CHECK} faults ${BIN})
add_test(NAME sim.repeats COMMAND ${SIMULATOR_CHECK} repeats ${BIN})
add_test(NAME sim.usage COMMAND ${SIMULATOR_CHECK} usage ${BIN})
# The same simulation over the objects that users link; and no fault has left its name in them.
add_test(NAME sim.library COMMAND tiercel-sim-clean --seeds 1:20)
add_test(NAME sim.library_has_no_faults COMMAND ${SIMULATOR_CHECK} names ${BIN} ${PROJECT_BINARY_DIR}/src)
set_tests_properties(sim.seeds sim.fresh sim.long sim.state_disk sim.full_state_disk sim.hybrid_remote sim.full_disk_remote sim.faults sim.repeats
  sim.usage sim.library sim.library_has_no_faults PROPERTIES TIMEOUT 600 LABELS sim)

tiercel_preset_test(asan sim.seeds COMMAND tiercel-sim-clean --seeds 1:50 LABELS sim)
# The disk log alone, a run of which is short: many more of them.
add_test(NAME sim.fresh_disk COMMAND tiercel-sim --fresh 120 --steps 4000 --spec disk)
set_tests_properties(sim.fresh_disk PROPERTIES TIMEOUT 600 LABELS "sim;long")
# Hours for whoever has them: tiercel-sim --fresh SECONDS.
add_test(NAME sim.fresh_long COMMAND tiercel-sim --fresh 300 --steps 3000)
set_tests_properties(sim.fresh_long PROPERTIES TIMEOUT 900 LABELS "sim;long")
