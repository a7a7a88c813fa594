// Which view a hash names, what it is made of, and which lists it needs.
import { array } from "./array.js";
import { cluster } from "./cluster.js";
import { ended } from "./ended.js";
import { feed } from "./feed.js";
import { job } from "./job.js";
import { queue } from "./queue.js";
import { state } from "./state.js";
import { searchBox, tablePath } from "./tables.js";

const STATUS = { status: "/v1/status" };
const NODES = { nodes: "/v1/nodes" };
const SHORT = 10, LONG = 25, LONGEST = 50; // rows of a table
const inTables = (names, limit, id) => Object.fromEntries(names.map((name) => [name, tablePath(name, limit, id)]));

// Of another user's job there is less; of one that is not there, nothing.
const ofJob = (id) => {
  const path = `/v1/jobs/${id}`;
  if (state.job?.missing) return {};
  const estimates = `/v1/tables/queue?grouped=false&limit=1&search=id:${id}`;
  const details = state.job?.details ? { why: `${path}/why`, attempts: `${path}/attempts` } : {};
  return { job: path, estimates, ...details };
};

const ofArray = (id) =>
  (state.array?.missing ? {} : { array: `/v1/arrays/${id}`, ...inTables(["running", "waiting", "ended"], LONG, id) });

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
    show: (shown) => [cluster(shown), searchBox(), queue(SHORT), ended(SHORT), feed(shown, 10)],
  },
  "#/cluster": { lists: () => NODES, show: cluster },
  "#/queue": { lists: () => inTables(["running", "waiting"], LONG), show: () => [searchBox(), queue(LONG)] },
  "#/ended": { lists: () => inTables(["ended"], LONGEST), show: () => [searchBox(), ended(LONGEST)] },
  "#/events": { lists: () => ({}), show: feed },
};

const ONE = {
  job: (id) => ({ lists: () => ofJob(id), show: job }),
  array: (id) => ({ lists: () => ofArray(id), show: array(id) }),
};

// The view for a hash; null for one that names none.
export const viewOf = (hash) => {
  const address = hash || "#/";
  const [, kind, id] = /^#\/(job|array)\/([0-9-]+)$/.exec(address) ?? [];
  const found = id ? { id, title: `${kind} ${id}`, ...ONE[kind](id) } : VIEWS[address];
  return found ? { address, ...found, lists: () => ({ ...STATUS, ...found.lists() }) } : null;
};
