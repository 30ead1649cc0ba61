include(CMakePackageConfigHelpers)

install(TARGETS kgen_shared EXPORT kgenTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS kgen RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS kgen-cc RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/kgen)
install(DIRECTORY include/kgen DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.def")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kgen)
install(EXPORT kgenTargets NAMESPACE kgen:: DESTINATION ${package_dir})
configure_package_config_file(cmake/kgenConfig.cmake.in "${CMAKE_BINARY_DIR}/kgenConfig.cmake"
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${CMAKE_BINARY_DIR}/kgenConfigVersion.cmake"
                                 COMPATIBILITY ${kgen_compatibility})
install(FILES "${CMAKE_BINARY_DIR}/kgenConfig.cmake" "${CMAKE_BINARY_DIR}/kgenConfigVersion.cmake"
        DESTINATION ${package_dir})

get_property(KGEN_REQUIRES GLOBAL PROPERTY KGEN_REQUIRES)
configure_file(kgen.pc.in "${CMAKE_BINARY_DIR}/kgen.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/kgen.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

file(GLOB man_pages CONFIGURE_DEPENDS docs/*.1 cli/*.1)
install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
file(GLOB completion CONFIGURE_DEPENDS docs/kgen.bash cli/kgen.bash)
install(FILES ${completion} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME kgen)
