-- The rule of the rate windows, run by Redis: one question, one answer. Its twin is core/rate_book.py, line by line.
-- KEYS[1]: a hash, the book. ARGV[1]: the question as JSON. Names that end in _us are microseconds.
-- The hash: epoch, run, offset, now, closed, turn, turn_at, turn_until; for requests (r) and tokens (t) a total 'rs', a
-- debt 'rd' and one field a bucket, 'r<number>'.

local key, ask = KEYS[1], cjson.decode(ARGV[1])
local size, count = ask.bucket_us, ask.buckets
local span = size * count

local function whole(number) return string.format('%.0f', number) end

local fields = {'epoch', 'run', 'offset', 'now', 'closed', 'turn', 'turn_at', 'turn_until', 'rs', 'rd', 'ts', 'td'}
local book = {}
for place, value in ipairs(redis.call('HMGET', key, unpack(fields))) do
  book[fields[place]] = value
end
for _, field in ipairs({'offset', 'now', 'closed', 'turn_at', 'turn_until', 'rs', 'rd', 'ts', 'td'}) do
  book[field] = tonumber(book[field] or 0)
end

-- Not in the twin: which run of the server this is. The book may lie in a copy on disk that is older than the last
-- grants; only an append-only file is as old as the last answer. Where INFO is not allowed, this is not known.
local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''

local function begin(now)
  redis.call('DEL', key)
  book = {epoch = ask.nonce, offset = 0, now = now, closed = now + span, turn = '', turn_at = 0, turn_until = 0,
          rs = 0, rd = 0, ts = 0, td = 0}
end

local function is_lost()
  if not book.epoch or (book.epoch == ask.epoch and ask.seen_us > book.now) then return true end
  if book.run == run then return false end
  return string.match(redis.call('INFO', 'persistence'), 'aof_enabled:(%d)') ~= '1'
end

local function bucket() return math.floor(book.now / size) end

local function add(kind, place, amount)
  local field = kind .. whole(place)
  if amount < 0 then amount = math.max(amount, -tonumber(redis.call('HGET', key, field) or 0)) end
  if amount ~= 0 then redis.call('HINCRBY', key, field, whole(amount)) end
  book[kind .. 's'] = book[kind .. 's'] + amount
  book[kind .. 'd'] = math.max(0, book[kind .. 'd'] + amount)
end

local function drain(kind, passed, limit)
  local debt = kind .. 'd'
  book[debt] = limit and math.max(0, math.min(book[debt], limit) - passed * limit / span) or 0
end

local function forget(kind, first, last)
  local gone = {}
  for place = first, last do gone[#gone + 1] = kind .. whole(place) end
  for _, amount in ipairs(redis.call('HMGET', key, unpack(gone))) do
    book[kind .. 's'] = book[kind .. 's'] - tonumber(amount or 0)
  end
  redis.call('HDEL', key, unpack(gone))
end

local function pass(before)
  local old = math.floor(before / size)
  local first, last = old - count + 1, math.min(bucket() - count, old)
  if first <= last then
    forget('r', first, last)
    forget('t', first, last)
  end
  drain('r', book.now - before, ask.rpm)
  drain('t', book.now - before, ask.tpm)
end

local function look_at_clock()
  local time = ask.time_us
  if not time then
    local parts = redis.call('TIME')
    time = parts[1] * 1000000 + parts[2]
  end
  if is_lost() then
    begin(time)
  else
    local before, now = book.now, time + book.offset
    local witness = math.max(ask.witness_us, before)
    if now < before then
      now = before
    elseif book.epoch == ask.epoch and now > witness + ask.clock_slack_us then
      now = witness
    end
    book.offset, book.now = now - time, now
    pass(before)
  end
  book.run = run
end

local function burst(limit) return limit * ask.burst_us / span end

local function pace(kind, limit)
  local debt = book[kind .. 'd']
  if not limit or debt <= burst(limit) then return 0 end
  return math.floor((math.min(debt, limit) - burst(limit)) * span / limit) + 1
end

local function room(kind, limit, amount)
  if not limit or book[kind .. 's'] + amount <= limit then return 0 end
  local excess, freed = book[kind .. 's'] + amount - limit, 0
  local oldest, newest, step = bucket() - count + 1, bucket(), 25
  for first = oldest, newest, step do
    local names = {}
    for place = first, math.min(first + step - 1, newest) do names[#names + 1] = kind .. whole(place) end
    for place, counted in ipairs(redis.call('HMGET', key, unpack(names))) do
      freed = freed + tonumber(counted or 0)
      if freed >= excess then return (first + place - 1 + count) * size - book.now end
    end
  end
  error('what is counted lies in the buckets of the window')
end

local function wait_of(tokens)
  local rpm, tpm, now = ask.rpm, ask.tpm, book.now
  if tpm and tokens > tpm then return 0, 'too_large' end
  if now < book.closed then return book.closed - now, 'rate_window_lost' end
  if tpm and book.turn ~= '' and book.turn ~= ask.asker and now < book.turn_until then
    return math.max(book.turn_at - now, 0), 'tpm'
  end
  local for_requests = math.max(pace('r', rpm), room('r', rpm, 1))
  local for_room = room('t', tpm, tokens)
  local for_tokens = math.max(pace('t', tpm), for_room)
  if tpm and for_room > 0 and tokens > burst(tpm) then
    book.turn, book.turn_at, book.turn_until = ask.asker, now + for_room, now + ask.turn_us
  end
  if for_tokens > for_requests then return for_tokens, 'tpm' end
  return for_requests, for_requests > 0 and 'rpm' or ''
end

look_at_clock()
if ask.is_fresh then book.closed = math.min(book.closed, book.now) end
if book.epoch == ask.epoch then
  for _, delta in ipairs(ask.deltas) do
    if delta[1] > bucket() - count then
      add('r', delta[1], delta[2])
      add('t', delta[1], delta[3])
    end
  end
end

local granted, wait, reason = 0, 0, ''
for _, tokens in ipairs(ask.tokens) do
  wait, reason = wait_of(tokens)
  if reason ~= '' then break end
  add('r', bucket(), 1)
  add('t', bucket(), tokens)
  if book.turn == ask.asker then book.turn = '' end
  granted = granted + 1
end

redis.call('HSET', key, 'epoch', book.epoch, 'run', book.run, 'offset', whole(book.offset), 'now', whole(book.now),
  'closed', whole(book.closed), 'turn', book.turn, 'turn_at', whole(book.turn_at),
  'turn_until', whole(book.turn_until), 'rs', whole(book.rs), 'rd', string.format('%.17g', book.rd),
  'ts', whole(book.ts), 'td', string.format('%.17g', book.td))
redis.call('PEXPIRE', key, ask.keep_ms)
return {granted, wait, reason, book.now, book.epoch, bucket()}
