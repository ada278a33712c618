# Configures a preset where it has not been configured yet, and builds it. Run by ctest (cmake/Stages.cmake):
#   cmake -DPRESET=asan -DBUILD=FOLDER -DTARGETS=a,b -DJOBS=2 -P BuildStage.cmake      TARGETS empty = everything
cmake_minimum_required(VERSION 3.25)
set(TARGET_OPTION)
if(TARGETS)
  string(REPLACE "," ";" TARGETS "${TARGETS}")
  set(TARGET_OPTION --target ${TARGETS})
endif()
if(${CMAKE_CURRENT_LIST_DIR}/../CMakePresets.json IS_NEWER_THAN ${BUILD}/build.ninja)  # also when there is no build yet
  execute_process(COMMAND ${CMAKE_COMMAND} --preset ${PRESET} -B ${BUILD} --log-level=WARNING COMMAND_ERROR_IS_FATAL ANY)
  file(TOUCH_NOCREATE ${BUILD}/build.ninja)
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} --parallel ${JOBS} ${TARGET_OPTION} COMMAND_ERROR_IS_FATAL ANY)
