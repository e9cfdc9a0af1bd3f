"""Builds SQL with immutable builders and chained methods, so that the store's own code contains no SQL text.

    after = seek(("c1", DESC, param("value")), ("owner", ASC, param("owner")))
    best_first = select(col("owner"), col("c1")).from_("b7").where(after).order_by(desc(col("c1")), asc(col("owner")))
    page = best_first.limit(param("rows")).packed().prepared()
    bound = page.bind(value="0000000600", owner="42", rows=100)  # still in no dialect
    built = bound.build(SQLITE)  # Built(sql, arguments, …)

Prepare a query once and bind it often. The first `build` for a dialect, SQLITE or POSTGRES, compiles the query to SQL
text; later builds only pick the arguments. The package executes nothing, and imports no other package of the project.

No argument to a builder can change the structure of the SQL, because values are bound, one function quotes all
identifiers, and every SQL keyword comes from this package.

Begin with `select` and `write`, which build statements, and `terms`, which builds the parts of a statement.
"""

from querybuilder.dialect import BLOB, INTEGER, POSTGRES, SQLITE, TEXT, Dialect, SqlType
from querybuilder.errors import QueryError
from querybuilder.render import STATEMENT_KINDS, Bound, Built, Prepared, Query
from querybuilder.schema import (
    CreateTable,
    add_column,
    create_index,
    create_schema_named,
    create_table,
    distribute_new_schemas,
    drop_table,
    measure_schemas,
    rename_table,
)
from querybuilder.select import Lock, Select, Union, recursive, rows, select, union_all
from querybuilder.terms import (
    ASC,
    DESC,
    Aliased,
    Column,
    Condition,
    Direction,
    Term,
    advisory_lock,
    all_of,
    any_of,
    as_text,
    asc,
    clock_us,
    coalesce,
    col,
    collated,
    contains_text,
    count,
    count_if,
    desc,
    excluded,
    larger_of,
    length,
    lit,
    lower_case,
    max_,
    min_,
    minus,
    null,
    param,
    part,
    plus,
    remainder,
    seek,
    smaller_of,
    sum_,
    times,
    whole_part,
)
from querybuilder.write import (
    BULK_ALIAS,
    Insert,
    Update,
    chained,
    delete,
    hold_table,
    insert,
    truncate,
    update,
)
