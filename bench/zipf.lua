-- 10,000 pages of 8 KiB by a Zipf law (alpha 0.9), drawn before the first request; with ZIPF_ALL=N each page N times in turn.
local pages, alpha, drawn = 10000, 0.9, 200000
local requests, order, at = {}, {}, 0
local threads = 0

function setup(thread)
    threads = threads + 1
    thread:set("seed", threads)
end

function init()
    for page = 1, pages do
        requests[page] = wrk.format("GET", "/8192/page-" .. page)
    end
    local all = tonumber(os.getenv("ZIPF_ALL") or "0")
    if all > 0 then
        for turn = 0, all - 1 do
            for page = 1, pages do order[turn * pages + page] = page end
        end
        return
    end
    local below, sum = {}, 0
    for page = 1, pages do
        sum = sum + page ^ -alpha
        below[page] = sum
    end
    math.randomseed(seed)
    for draw = 1, drawn do
        local point, low, high = math.random() * sum, 1, pages
        while low < high do
            local middle = math.floor((low + high) / 2)
            if below[middle] < point then low = middle + 1 else high = middle end
        end
        order[draw] = low
    end
end

function request()
    at = at % #order + 1
    return requests[order[at]]
end
