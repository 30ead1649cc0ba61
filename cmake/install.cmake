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

# Paths from where the file lies, as `cmake --install --prefix` may choose another place. It requires nothing: the library is a
# shared one, and pkg-config wants the .pc files of private requirements too.
file(RELATIVE_PATH kgen_up "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "(.*)/$" "\${pcfiledir}/\\1" kgen_pc_prefix "${kgen_up}")
set(kgen_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
set(kgen_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(kgen_pc_prefix "${CMAKE_INSTALL_PREFIX}")
  set(kgen_pc_libdir "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(kgen_pc_includedir "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
endif()
configure_file(kgen.pc.in "${CMAKE_BINARY_DIR}/kgen.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/kgen.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

file(GLOB man_pages CONFIGURE_DEPENDS docs/*.1 cli/*.1)
install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
file(GLOB completion CONFIGURE_DEPENDS docs/kgen.bash cli/kgen.bash)
install(FILES ${completion} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME kgen)
install(FILES cli/_kgen DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES docs/kgen.schema.json packaging/Containerfile packaging/kgen-tmpfiles.conf DESTINATION ${CMAKE_INSTALL_DOCDIR})

# cmake --preset package && cmake --build --preset package: a Debian package.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kgen)
set(CPACK_PACKAGE_CONTACT "kgen <root@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_BINARY_DIR}/lib")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON) # with ldconfig's trigger
# A compiler for AMD GPUs and cpu devices, where no ROCm is; the remote layer of the cache.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS
    "clang-19 | clang-20 | clang-21 | clang-18, lld-19 | lld-20 | lld-21 | lld-18, libcurl4 | libcurl4t64")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libhiprtc7 | libhiprtc6")
include(CPack)
