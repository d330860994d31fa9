#pragma once
#include "more_innocent.cuh"
