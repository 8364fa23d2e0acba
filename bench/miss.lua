-- Every request another page of 8 KiB.
local prefix, at = os.getenv("MISS_PREFIX") or "miss", 0

function request()
    at = at + 1
    return wrk.format("GET", "/8192/" .. prefix .. "-" .. at)
end
