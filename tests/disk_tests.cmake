# The disk tier on real files: processes that are killed while they write, and what a machine may do to a file.
add_executable(disk_kills disk_kills.cc disk_kills_audit.cc disk_kills_book.cc disk_kills_device.cc disk_kills_plan.cc
  disk_kills_victim.cc disk_kills_world.cc)
target_link_libraries(disk_kills PRIVATE tiercel_node fmt::fmt)
add_test(NAME disk.kills COMMAND disk_kills --kills 300)
set_tests_properties(disk.kills PROPERTIES PROCESSORS 2 TIMEOUT 900 LABELS disk)

tiercel_test_program(disk_faults_test disk.faults SOURCES disk_faults.cc disk_faults_ends.cc LIBRARIES tiercel_node)

# Ten thousand, for whoever has the half hour: ctest --test-dir build/dev -R disk.soak, or the program with --kills.
add_test(NAME disk.soak COMMAND disk_kills --kills 10000)
set_tests_properties(disk.soak PROPERTIES PROCESSORS 2 TIMEOUT 7200 LABELS "disk;long")

# 5 GiB really written.
add_test(NAME disk.large COMMAND disk_faults_test --gtest_filter=DiskH12.*)
set_tests_properties(disk.large PROPERTIES ENVIRONMENT TIERCEL_LONG_TESTS=1 TIMEOUT 3600 LABELS "disk;long")
