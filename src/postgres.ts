/** `smooth-limiter/postgres`: a store in a table of PostgreSQL, for the limiters of `smooth-limiter/store`. */

export {
  type PostgresClient,
  type PostgresStoreOptions,
  postgresStore,
} from "./stores/postgres-store.ts";
