import { oncePerProcess } from "../../ground/copies.ts";

/**
 * Returns a function that makes a value for each client, once for all copies of this package.
 *
 * @param name of these values, unique in this package
 */
export function onePerClient<Client extends object, Value>(
  name: string,
  make: (client: Client) => Value,
): (client: Client) => Value {
  const values = oncePerProcess(name, () => new WeakMap<Client, Value>());
  return (client) => {
    const value = values.get(client) ?? make(client);
    values.set(client, value);
    return value;
  };
}
