// Solves one minimum-cost flow problem by LEMON's network simplex: a peer for benchmarks.
//
// Reads the DIMACS format ("p min", "n", "a" lines; lower bounds are 0) from the file named first and prints one line of
// JSON: how it ended, the optimal cost, and the milliseconds of reading, of building LEMON's graph and of the solve alone.

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

using Graph = lemon::SmartDigraph;
using Clock = std::chrono::steady_clock;

static double milliseconds(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    std::FILE *file = std::fopen(argv[1], "r");
    if (!file) {
        std::fprintf(stderr, "cannot read %s\n", argv[1]);
        return 2;
    }
    const auto start = Clock::now();
    long long nodes = 0, announced = 0;
    std::vector<long long> supply, tail, head, capacity, cost;
    char line[256];
    while (std::fgets(line, sizeof line, file)) {
        long long a, b, low, high, price;
        if (std::sscanf(line, "a %lld %lld %lld %lld %lld", &a, &b, &low, &high, &price) == 5) {
            tail.push_back(a - 1);
            head.push_back(b - 1);
            capacity.push_back(high);
            cost.push_back(price);
        } else if (std::sscanf(line, "n %lld %lld", &a, &b) == 2) {
            supply.at(a - 1) = b;
        } else if (std::sscanf(line, "p min %lld %lld", &nodes, &announced) == 2) {
            supply.assign(nodes, 0);
        }
    }
    std::fclose(file);
    if (static_cast<long long>(tail.size()) != announced) {
        std::fprintf(stderr, "%s has %zu arcs; its problem line says %lld\n", argv[1], tail.size(), announced);
        return 2;
    }
    const auto read = Clock::now();

    Graph graph;
    graph.reserveNode(static_cast<int>(nodes));
    graph.reserveArc(static_cast<int>(announced));
    for (long long i = 0; i < nodes; ++i) graph.addNode();
    for (size_t i = 0; i < tail.size(); ++i)
        graph.addArc(graph.nodeFromId(static_cast<int>(tail[i])), graph.nodeFromId(static_cast<int>(head[i])));
    Graph::ArcMap<long long> capacities(graph), costs(graph);
    for (size_t i = 0; i < tail.size(); ++i) {
        capacities[graph.arcFromId(static_cast<int>(i))] = capacity[i];
        costs[graph.arcFromId(static_cast<int>(i))] = cost[i];
    }
    Graph::NodeMap<long long> supplies(graph);
    for (long long i = 0; i < nodes; ++i) supplies[graph.nodeFromId(static_cast<int>(i))] = supply[i];
    const auto built = Clock::now();

    lemon::NetworkSimplex<Graph, long long, long long> simplex(graph);
    simplex.upperMap(capacities).costMap(costs).supplyMap(supplies);
    const auto outcome = simplex.run();
    const auto solved = Clock::now();
    const bool optimal = outcome == lemon::NetworkSimplex<Graph, long long, long long>::OPTIMAL;
    std::printf("{\"status\": \"%s\", \"cost\": %lld, \"read_ms\": %.3f, \"build_ms\": %.3f, \"solve_ms\": %.3f}\n",
                optimal ? "optimal" : "none", optimal ? simplex.totalCost<long long>() : 0LL,
                milliseconds(start, read), milliseconds(read, built), milliseconds(built, solved));
    return 0;
}
