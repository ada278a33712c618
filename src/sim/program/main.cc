#include "sim/command.h"

int main(int argc, char** argv) { return tiercel::sim::command(argc, argv); }
