#!/usr/bin/env python3
"""Installs the library into a folder of the build and uses it from there: CMake package, pkg-config, C and C++.

Usage: capi_install.py CMAKE BUILD_FOLDER C_COMPILER CXX_COMPILER
"""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.join(HERE, "capi_installed")
HEADERS = sorted(os.listdir(os.path.join(os.path.dirname(HERE), "include", "tiercel")))


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nends with {done.returncode}:\n{done.stdout}")
    return done.stdout


def main():
    cmake, build, c_compiler, cxx_compiler = sys.argv[1:]
    prefix, user = os.path.join(build, "installed"), os.path.join(build, "installed_user")
    for folder in (prefix, user):
        shutil.rmtree(folder, ignore_errors=True)
    run(cmake, "--install", build, "--prefix", prefix, "--component", "library")
    for header in HEADERS:
        assert os.path.isfile(os.path.join(prefix, "include", "tiercel", header)), f"{header} is not installed"

    run(cmake, "-S", PROJECT, "-B", user, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_C_COMPILER={c_compiler}",
        f"-DCMAKE_CXX_COMPILER={cxx_compiler}")
    run(cmake, "--build", user)
    print(run(os.path.join(user, "from_c")), run(os.path.join(user, "from_cpp")), sep="", end="")

    if shutil.which("pkg-config") is None:
        print("skipped: 1 case, pkg-config is not here")
        return
    found = [os.path.join(folder, name) for folder, _, names in os.walk(prefix) for name in names if name == "tiercel.pc"]
    library = os.path.dirname(os.path.dirname(found[0]))
    flags = run("pkg-config", "--cflags", "--libs", "tiercel",
                env={**os.environ, "PKG_CONFIG_PATH": os.path.dirname(found[0])}).split()
    program = os.path.join(user, "by_pkg_config")
    run(c_compiler, "-std=c11", os.path.join(PROJECT, "from_c.c"), "-o", program, *flags)
    print(run(program, env={**os.environ, "LD_LIBRARY_PATH": library}), end="")


if __name__ == "__main__":
    main()
