# `cmake --install`: the command line program, the library with its headers, and what finds them: a CMake package and a
# pkg-config file. The simulator is for tests and stays here. `--component library`: all but the program.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
if(TARGET tiercel)
  install(TARGETS tiercel RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS tiercel_shared tiercel_static
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT library
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY include/tiercel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
# Where the program and the library look for them (src/remote/open_store.h).
install(DIRECTORY connectors/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tiercel/connectors COMPONENT library
  PATTERN __pycache__ EXCLUDE)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(TIERCEL_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tiercel)
configure_package_config_file(cmake/tiercel-config.cmake.in ${PROJECT_BINARY_DIR}/tiercel-config.cmake
  INSTALL_DESTINATION ${TIERCEL_PACKAGE_DIR} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tiercel-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tiercel-config.cmake ${PROJECT_BINARY_DIR}/tiercel-config-version.cmake
  DESTINATION ${TIERCEL_PACKAGE_DIR} COMPONENT library)

# Relative, so that the file is right wherever the library is installed.
file(RELATIVE_PATH TIERCEL_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/tiercel.pc.in ${PROJECT_BINARY_DIR}/tiercel.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tiercel.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
