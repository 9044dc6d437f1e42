/** `smooth-limiter/postgres`: a store in a table of PostgreSQL, for the limiters of `smooth-limiter/store`. */

export type { PostgresClient } from "./stores/postgres/postgres-client.ts";
export { type PostgresStoreOptions, postgresStore } from "./stores/postgres/postgres-store.ts";
