#!/usr/bin/env bash
# Shows the whole job on sample conversations: record, replay, fold, page, retry, keep callers apart, survive a kill,
# export, import, clear. It needs bash and curl; with jq what is printed is prettier, and more is compared.
#
# Everything happens in a scratch directory that is removed at the end. It ends with an error as soon as something is
# not as it should be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
samples=$PWD/scripts/demo-data
historyd=$PWD/bin/historyd
[ -x "$historyd" ] || make build
# Settings of yours have no say here.
for name in ${!HISTORYD_@}; do unset "$name"; done

umask 077
scratch=$(mktemp -d)
data=$scratch/data
pid=
finish() {
	if [ -n "$pid" ]; then { kill -KILL "$pid" && wait "$pid"; } 2>/dev/null || true; fi
	rm -rf "$scratch"
}
trap finish EXIT
cat >"$scratch/historyd.yaml" <<'YAML'
# A tool without a category is withheld; tools that find something may be kept.
projection:
  tools:
    - {match: "find_*", category: search}
YAML

step() { printf '\n== %s\n' "$*"; }
note() { printf '   %s\n' "$*"; }
fail() {
	printf '\nFAILED: %s\n' "$*" >&2
	if [ -s "$scratch/body" ]; then head -c 2000 "$scratch/body" >&2; fi
	if [ -s "$scratch/log" ]; then printf '\nthe log of the daemon:\n' >&2 && tail -n 20 "$scratch/log" >&2; fi
	exit 1
}

# start runs the daemon on a free port and waits until it has said where.
start() {
	: >"$scratch/out"
	"$historyd" serve --config "$scratch/historyd.yaml" --data-dir "$data" --listen 127.0.0.1:0 \
		>"$scratch/out" 2>>"$scratch/log" &
	pid=$!
	local i
	for ((i = 0; i < 200; i++)); do
		url=$(sed -n 's/^historyd listens on //p' "$scratch/out")
		if [ -n "$url" ]; then return; fi
		kill -0 "$pid" 2>/dev/null || fail "the daemon did not start"
		sleep 0.05
	done
	fail "the daemon did not say where it listens"
}

# caller makes a caller and a file with its token as a header, so that no token is ever in an argument.
caller() { # name kind
	"$historyd" token create --config "$scratch/historyd.yaml" --data-dir "$data" --kind "$2" --id "$1" 2>/dev/null |
		sed 's/^/Authorization: Bearer /' >"$scratch/$1.header"
}

# call makes a request as a caller and fails unless it is answered with the status. The body is in $scratch/body, the
# headers are in $scratch/headers; what is on standard input is sent with -d @-.
call() { # status name method path [arguments of curl]
	local want=$1 name=$2 method=$3 path=$4 got
	shift 4
	got=$(curl -sS -m 10 -o "$scratch/body" -D "$scratch/headers" -w '%{http_code}' -X "$method" \
		-H "@$scratch/$name.header" "$@" "$url$path") || fail "$method $path: no answer"
	[ "$got" = "$want" ] || fail "$method $path answered $got, want $want"
}

# post appends one turn, a line of a sample, to a conversation.
post() { # name conversation [arguments of curl]
	local name=$1 conversation=$2
	shift 2
	call 201 "$name" POST "/v1/conversations/$conversation/turns?format=openai" \
		-H 'Content-Type: application/json' -d @- "$@"
}

show() {
	if command -v jq >/dev/null; then jq "${1:-.}" "$scratch/body"; else
		cat "$scratch/body"
		echo
	fi
}
has() { grep -qF -- "$1" "$scratch/body" || fail "\"$1\" is not in the answer"; }
hasnt() { ! grep -qF -- "$1" "$scratch/body" || fail "\"$1\" is in the answer"; }
keep() { cp "$scratch/body" "$scratch/$1"; }
same() { cmp -s "$scratch/body" "$scratch/$1" || fail "the answer is not what it was before"; }
nowhere() { # text
	! grep -rqF -- "$1" "$data" || fail "\"$1\" is on disk: $(grep -rlF -- "$1" "$data")"
	! grep -qF -- "$1" "$scratch/log" || fail "\"$1\" is in the log"
}

step "Two callers: ann, an operator, and fern, a peer agent. Only hashes of their tokens are kept."
caller ann operator
caller fern mesh
start
note "the daemon is process $pid at $url, its data is in $data"
call 200 ann GET /v1/whoami
show

step "Ann's agent records three turns of a conversation, in the form it exchanged them with its model."
mapfile -t turns <"$samples/trip.jsonl"
post ann trip <<<"${turns[0]}"
show
has '"first_seq":1,"last_seq":4'

step "The second turn pays with a wallet. What a wallet was called with is never kept, nor what it answered; the server says so."
post ann trip <<<"${turns[1]}"
show .changes
has '"action":"redacted","category":"wallet"'
nowhere ninety-blue-herons
note "\"ninety-blue-herons\" is in no file and not in the log"

step "The third turn is sent twice under one key, as after an answer that was lost. It is recorded once."
post ann trip -H 'Idempotency-Key: third' <<<"${turns[2]}"
keep first
post ann trip -H 'Idempotency-Key: third' <<<"${turns[2]}"
same first
grep -qi '^Idempotent-Replayed: true' "$scratch/headers" || fail "the second answer doesn't say that it is the first again"
call 200 ann GET /v1/conversations/trip
show
has '"messages":10,"turns":3'

step "The record is paged by sequence number; tool calls come back to the byte."
call 200 ann GET '/v1/conversations/trip/messages?after=1&limit=2'
show
has 'Lantern House, top floor'
has '"has_more":true'

step "The replay is what to send to the model next: what was said, without stale tool traffic."
call 200 ann GET '/v1/conversations/trip/replay?format=openai'
show .messages
has "<I'd rather not change> & no buses 🚆"
hasnt tool_calls
keep replay

step "Fern has a conversation of the same name. Neither sees the other's."
while IFS= read -r turn; do post fern trip <<<"$turn"; done <"$samples/garden.jsonl"
call 200 fern GET /v1/conversations/trip/replay
has 'north bed'
hasnt 'Port Ellery'
call 200 fern GET /v1/conversations
show .data
hasnt '"turns":3'
call 200 ann GET /v1/conversations/trip/messages
hasnt 'north bed'
keep record

step "Fern's agent keeps a diary of 16 turns. The replay begins with a summary of the oldest; the newest follow word for word."
for ((day = 1; day <= 16; day++)); do
	post fern diary <<<"{\"messages\":[{\"role\":\"user\",\"content\":\"Day $day: is the north bed watered?\"},{\"role\":\"assistant\",\"content\":\"Yes, with $((day + 4)) litres.\"}]}"
done
call 200 fern GET '/v1/conversations/diary/replay?format=openai'
show '.messages[:3]'
has '<earlier_conversation turns=\"5\">'
hasnt '"content":"Day 5: is the north bed watered?"'
has '"content":"Day 6: is the north bed watered?"'
has '"content":"Yes, with 20 litres."'
keep folded

step "The daemon is killed with -9 and started again: nothing that was acknowledged is lost."
{ kill -KILL "$pid" && wait "$pid"; } 2>/dev/null || true
pid=
start
call 200 ann GET /v1/conversations/trip/messages
same record
call 200 ann GET '/v1/conversations/trip/replay?format=openai'
same replay
call 200 fern GET '/v1/conversations/diary/replay?format=openai'
same folded
post ann trip -H 'Idempotency-Key: third' <<<"${turns[2]}"
same first
note "the same record, the same replays, and the key of the third turn is still known"

step "Ann exports the conversation as one value, and fern imports it as a conversation of its own."
call 200 ann GET /v1/conversations/trip/export
keep export
show '{version, type, conversation, messages: (.messages | length)}'
call 201 fern POST /v1/conversations/from-ann/import -H 'Content-Type: application/json' --data-binary "@$scratch/export"
show
has '"imported":10'
call 200 fern GET /v1/conversations/from-ann/replay
has 'Port Ellery'
if command -v jq >/dev/null; then
	call 200 fern GET /v1/conversations/from-ann/export
	value='del(.conversation, .messages[].imported, .messages[].seq)'
	cmp -s <(jq -S "$value" "$scratch/export") <(jq -S "$value" "$scratch/body") || fail "the imported value is another"
	note "exported again it is the same value"
fi

step "Both clear it, and then no byte of it is left."
grep -rqF 'Port Ellery' "$data" || fail "the text is not where it should be so far"
call 204 ann DELETE /v1/conversations/trip
call 204 fern DELETE /v1/conversations/from-ann
nowhere 'Port Ellery'
note "\"Port Ellery\" is in no file"
call 200 fern GET /v1/conversations/trip/replay
has 'north bed'
note "fern's own conversation of that name is untouched"

step "The data directory is checked while the daemon runs."
"$historyd" check --config "$scratch/historyd.yaml" --data-dir "$data" || fail "it is not sound"

step "Without a token nobody is let in, and the daemon stops in order."
printf 'Authorization: Bearer nobody\n' >"$scratch/nobody.header"
call 401 nobody GET /v1/conversations
kill -TERM "$pid"
wait "$pid" || fail "the daemon ended with code $?"
pid=

printf '\nAll of it went as it should.\n'
