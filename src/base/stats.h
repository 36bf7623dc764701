// stats.h - mean, spread and quantiles of a few measurements.
#pragma once
#include <stddef.h>

double stats_mean(const double *x, size_t n);   // 0 for n = 0
double stats_stddev(const double *x, size_t n); // of a sample: n - 1 below; 0 for n < 2
void stats_sort(double *x, size_t n);
// q from 0 to 1 of sorted values, interpolated between neighbours; 0 for n = 0.
double stats_quantile(const double *sorted, size_t n, double q);
// Of unsorted values, which it sorts.
double stats_median(double *x, size_t n);
double stats_interquartile_mean(double *x, size_t n); // without the lowest and highest quarter
