# Medians over rounds, and the ratio of Verbena's to each other's with the least and the most of any round.
function median(list, count,    i, j, swap) {
    for (i = 2; i <= count; i++)
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) { swap = list[j]; list[j] = list[j - 1]; list[j - 1] = swap }
    return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
}
function middle(name, variant, column,    round, list) {
    for (round = 1; round <= rounds[name]; round++) list[round] = value[name, variant, round, column]
    return median(list, rounds[name])
}
function compare(name, variant, column, what, target,    round, ratio, least, most) {
    for (round = 1; round <= rounds[name]; round++) {
        ratio = value[name, own[name], round, column] / value[name, variant, round, column]
        if (round == 1 || ratio < least) least = ratio
        if (round == 1 || ratio > most) most = ratio
    }
    ratio = middle(name, own[name], column) / middle(name, variant, column)
    printf "%-5s %-8s over %-8s %-20s %.2f (%.2f to %.2f)%s\n", name, own[name], variant, what, ratio, least, most, target
}
NR > 1 {
    if (!($1 in rounds)) { order[++cases] = $1; own[$1] = $3; rounds[$1] = 0 }
    if (!(($1, $3) in seen)) { seen[$1, $3] = 1; others[$1] = others[$1] " " $3 }
    if ($2 > rounds[$1]) rounds[$1] = $2
    for (column = 4; column <= 6; column++) value[$1, $3, $2, column] = $column
}
END {
    target["8k", "nginx"] = "  (1.30 asked for)"; target["8k", "varnish"] = "  (1.50 asked for)"; target["8k", "bare"] = "  (0.85 asked for)"
    target["tail", "nginx"] = "  (at most 1.10 asked for)"
    for (at = 1; at <= cases; at++) {
        name = order[at]
        count = split(others[name], list, " ")
        for (i = 1; i <= count; i++)
            printf "%-5s %-8s %9.0f requests/s, median %7.0f us, p99 %7.0f us\n", name, list[i], middle(name, list[i], 4), middle(name, list[i], 5), middle(name, list[i], 6)
        column = name == "tail" ? 6 : name == "miss" ? 5 : 4
        what = name == "tail" ? "p99" : name == "miss" ? "median latency" : "requests/s"
        for (i = 1; i <= count; i++)
            if (list[i] != own[name]) compare(name, list[i], column, what, target[name, list[i]])
        if (name == "miss") for (i = 1; i <= count; i++) if (list[i] != own[name]) compare(name, list[i], 6, "p99 latency", "")
    }
}
