// stats.c - see stats.h.
#include "base/stats.h"
#include <math.h>
#include <stdlib.h>

double stats_mean(const double *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return n ? sum / (double)n : 0;
}

double stats_stddev(const double *x, size_t n)
{
    double mean = stats_mean(x, n), sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return n < 2 ? 0 : sqrt(sum / (double)(n - 1));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void stats_sort(double *x, size_t n)
{
    if (n)
        qsort(x, n, sizeof *x, compare);
}

double stats_quantile(const double *sorted, size_t n, double q)
{
    if (n == 0)
        return 0;
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n)
        return sorted[n - 1];
    return sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]);
}

double stats_median(double *x, size_t n)
{
    stats_sort(x, n);
    return stats_quantile(x, n, 0.5);
}

double stats_interquartile_mean(double *x, size_t n)
{
    stats_sort(x, n);
    return stats_mean(x + n / 4, n - n / 4 - n / 4);
}
