# `cmake --install`: the command line program and the public headers. The simulator is for tests and stays here.
include(GNUInstallDirs)
if(TARGET tiercel)
  install(TARGETS tiercel RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/tiercel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} OPTIONAL FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
