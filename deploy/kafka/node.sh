# What `start` and `stop` share. Sourced, for bash 3.2 and later.

ARCHIVE=classes.jsa  # beside the jars

need_java() {
  local found
  if ! command -v java > /dev/null || ! found=$(java -version 2>&1); then
    echo "Kafka needs Java 17 or later: install it (Debian: default-jre-headless, macOS: brew install openjdk)" >&2
    exit 3
  fi
  found=$(printf '%s\n' "$found" | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  if [ "${found:-0}" -lt 17 ]; then
    echo "Kafka needs Java 17 or later, and java on the path is version ${found:-unknown}" >&2
    exit 3
  fi
}

# Have Maven copy the jars of pom.xml, once a machine. They appear under their final name only when all are there.
fetch_jars() {
  local target=$1
  part=$1.part$$  # not local: the trap below runs when the script ends
  if ! command -v mvn > /dev/null; then
    echo "Kafka's jars are fetched with Maven: install it (Debian: maven, macOS: brew install maven)" >&2
    exit 3
  fi
  echo "Fetching Kafka's jars (55 MB, once)" >&2
  trap 'rm -rf "$part"' EXIT
  mkdir -p "$(dirname "$target")"
  if ! mvn -q -B -ntp -f "$here/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
      "-DoutputDirectory=$part" >&2; then
    echo "Maven could not fetch Kafka's jars (a proxy or mirror goes into its settings.xml)" >&2
    exit 3
  fi
  [ -d "$target" ] || mv "$part" "$target"  # another start may have been quicker
}

# Have Java keep what it makes of the classes that a node loads: that is half the processor time of a start. It is made
# once a machine, by a node that is started and stopped; where that fails, nodes start as they did.
make_archive() {
  local jars=$1 scratch part=$1/classes.part$$
  scratch=$(mktemp -d)
  if KAFKA_JAVA_OPTS="-XX:ArchiveClassesAtExit=$part" start_node "$scratch" "$(free_port)" "$jars"; then
    stop_node "$scratch"
    [ ! -f "$part" ] || mv -f "$part" "$jars/$ARCHIVE"
  fi
  rm -rf "$scratch"
}

# True while the pid in the data folder is our node, and not a process that was given its number later.
node_runs() {
  local data=$1
  [ -f "$data/pid" ] && command_of "$(cat "$data/pid")" | grep -qF "$data/server.properties"
}

# Small Linux systems have no ps, others no /proc.
command_of() {
  if [ -d /proc/self ]; then
    tr '\0' ' ' < "/proc/$1/cmdline"
  else
    ps -ww -o command= -p "$1"
  fi 2> /dev/null
}

accepts() { (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; }

# The ports to choose from: outside the range from which the system gives out ports for outgoing connections (where it
# has no such file, that begins at 32768 or later). Below it, or above where too few are left below.
ports_to_choose_from() {
  local first=32768 last=65535
  [ ! -r /proc/sys/net/ipv4/ip_local_port_range ] || read -r first last < /proc/sys/net/ipv4/ip_local_port_range
  if [ "$first" -ge 10100 ]; then
    echo "$((first < 22000 ? 10000 : first - 12000)) $((first - 1))"
  else
    echo "$((last + 1)) 65535"
  fi
}

# A port of those that nobody listens on.
free_port() {
  local port first last
  read -r first last < <(ports_to_choose_from)
  if [ "$first" -le "$last" ]; then
    for _ in $(seq 100); do
      port=$((first + (RANDOM * 32768 + RANDOM) % (last - first + 1)))
      if ! accepts "$port"; then
        echo "$port"
        return
      fi
    done
  fi
  echo "No free port found from $first to $last; give one with --port" >&2
  return 1
}

write_properties() {
  local data=$1 port=$2 controller=$3
  cat > "$data/server.properties" << END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
log.dirs=$data/logs
auto.create.topics.enable=false
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=5
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
min.insync.replicas=1
group.initial.rebalance.delay.ms=0
END
}

# As `StorageTool random-uuid` prints one, without its two seconds: 16 random bytes in URL-safe base64, no dash in front.
cluster_id() { head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=' | sed 's/^-/A/'; }

# Start the node and wait up to 120 s for it; false when it ended (seen at once) or did not get there.
start_node() {
  local data=$1 port=$2 jars=$3 deadline archive=()
  if accepts "$port"; then
    echo "Port $port is taken" > "$data/server.log"
    return 1
  fi
  [ ! -f "$jars/$ARCHIVE" ] || archive=("-XX:SharedArchiveFile=$jars/$ARCHIVE")
  write_properties "$data" "$port" "$(free_port)"
  if [ ! -f "$data/logs/meta.properties" ]; then
    java ${archive[@]+"${archive[@]}"} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jars/*" \
      kafka.tools.StorageTool format -t "$(cluster_id)" -c "$data/server.properties" > "$data/server.log" 2>&1 || return 1
  fi
  # The node outlives this script and its terminal: own output, no input, and nohup.
  # shellcheck disable=SC2086  # KAFKA_JAVA_OPTS is a list of words
  (exec nohup java -Xms128m -Xmx512m -XX:+UseSerialGC ${archive[@]+"${archive[@]}"} ${KAFKA_JAVA_OPTS:-} \
    "-Dlog4j2.configurationFile=$here/log4j2.xml" -cp "$jars/*" kafka.Kafka "$data/server.properties" \
    > "$data/server.log" 2>&1 < /dev/null) &
  echo $! > "$data/pid"
  deadline=$((SECONDS + 120))
  while [ "$SECONDS" -lt "$deadline" ]; do
    if grep -q "Kafka Server started" "$data/server.log" && accepts "$port"; then
      echo "127.0.0.1:$port" > "$data/address"
      return 0
    fi
    node_runs "$data" || kill -0 "$(cat "$data/pid")" 2> /dev/null || break
    sleep 0.1
  done
  stop_node "$data"
  return 1
}

stop_node() {
  local data=$1 pid
  pid=$(cat "$data/pid")
  kill "$pid" 2> /dev/null || true
  # Not kill -0: where nobody collects it, an ended process keeps its number.
  for _ in $(seq 300); do
    if ! node_runs "$data"; then break; fi
    sleep 0.1
  done
  if node_runs "$data" && kill -9 "$pid" 2> /dev/null; then
    echo "Kafka (pid $pid) did not stop in 30 s and was killed" >&2
  fi
  rm -f "$data/pid"
}
