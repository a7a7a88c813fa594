// Which view a hash names, what it is made of, and which lists it needs.
import { cluster } from "./cluster.js";
import { ended } from "./ended.js";
import { feed } from "./feed.js";
import { job } from "./job.js";
import { queue } from "./queue.js";
import { searchBox, tablePath } from "./tables.js";

const STATUS = { status: "/v1/status" };
const NODES = { nodes: "/v1/nodes" };
const SHORT = 10, LONG = 25, LONGEST = 50; // rows of a table
const inTables = (names, limit) => Object.fromEntries(names.map((name) => [name, tablePath(name, limit)]));

const ofJob = (id) => {
  const path = `/v1/jobs/${id}`;
  const estimates = `/v1/tables/queue?grouped=false&limit=1&search=id:${id}`;
  return { job: path, why: `${path}/why`, attempts: `${path}/attempts`, estimates };
};

export const TABS = [
  ["#/", "Overview"],
  ["#/cluster", "Cluster"],
  ["#/queue", "Queue"],
  ["#/ended", "Ended"],
  ["#/events", "Events"],
];

const VIEWS = {
  "#/": {
    lists: () => ({ ...NODES, ...inTables(["running", "waiting", "ended"], SHORT) }),
    show: (state) => [cluster(state), searchBox(), queue(SHORT), ended(SHORT), feed(state, 10)],
  },
  "#/cluster": { lists: () => NODES, show: cluster },
  "#/queue": { lists: () => inTables(["running", "waiting"], LONG), show: () => [searchBox(), queue(LONG)] },
  "#/ended": { lists: () => inTables(["ended"], LONGEST), show: () => [searchBox(), ended(LONGEST)] },
  "#/events": { lists: () => ({}), show: feed },
};

// The view for a hash; null for one that names none.
export const viewOf = (hash) => {
  const address = hash || "#/";
  const [, id] = /^#\/job\/([0-9-]+)$/.exec(address) ?? [];
  const found = id ? { id, lists: () => ofJob(id), show: job } : VIEWS[address];
  return found ? { address, ...found, lists: () => ({ ...STATUS, ...found.lists() }) } : null;
};
