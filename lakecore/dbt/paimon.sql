{#-
  Keeps the models of a dbt project in a Paimon warehouse. Written by `python -m lakecore.dbt`; do
  not edit, write it again after an upgrade of lakecore asks for it.

  A model whose database is the alias of a plugin `lakecore.dbt` is stored by that plugin. Any other
  model is left to dbt-duckdb.
-#}

{% macro lakecore_keeps(relation) %}
  {% for plugin in target.plugins or [] %}
    {% if plugin.module == 'lakecore.dbt' and (plugin.alias or 'dbt') == relation.database %}
      {{ return(True) }}
    {% endif %}
  {% endfor %}
  {{ return(False) }}
{% endmacro %}

{#- A table without rows is loaded in full: a filter such as `t > (select max(t) ...)` keeps none. -#}
{% macro is_incremental() %}
  {% if not execute or not lakecore_keeps(this) %}
    {{ return(dbt.is_incremental()) }}
  {% endif %}
  {% if model.config.materialized != 'incremental' or should_full_refresh()
      or adapter.get_relation(this.database, this.schema, this.table) is none %}
    {{ return(False) }}
  {% endif %}
  {{ return(run_query('select 1 from ' ~ this ~ ' limit 1') | length > 0) }}
{% endmacro %}

{#- The statement stands in both: dbt runs a Python model from a materialization alone. -#}
{% materialization table, adapter="duckdb", supported_languages=['sql', 'python'] %}
  {% if not lakecore_keeps(this) %}
    {% do lakecore_refuse_python() %}
    {{ return(dbt_duckdb.materialization_table_duckdb()) }}
  {% endif %}
  {% set rows = lakecore_rows() %}
  {% call statement('main', language=model['language']) -%}
    {{ create_table_as(False, rows, compiled_code, model['language']) }}
  {%- endcall %}
  {{ return(lakecore_store(rows)) }}
{% endmaterialization %}

{% materialization incremental, adapter="duckdb", supported_languages=['sql', 'python'] %}
  {% if not lakecore_keeps(this) %}
    {% do lakecore_refuse_python() %}
    {{ return(dbt_duckdb.materialization_incremental_duckdb()) }}
  {% endif %}
  {% set rows = lakecore_rows() %}
  {% call statement('main', language=model['language']) -%}
    {{ create_table_as(False, rows, compiled_code, model['language']) }}
  {%- endcall %}
  {{ return(lakecore_store(rows)) }}
{% endmaterialization %}

{% materialization view, adapter="duckdb" %}
  {% do lakecore_refuse('view', 'materialize it as a table, or leave it in the DuckDB database') %}
  {{ return(dbt.materialization_view_default()) }}
{% endmaterialization %}

{% materialization seed, adapter="duckdb" %}
  {% do lakecore_refuse('seed', 'leave it in the DuckDB database, and select from it in a model') %}
  {{ return(dbt.materialization_seed_default()) }}
{% endmaterialization %}

{% materialization snapshot, adapter="duckdb" %}
  {% do lakecore_refuse('snapshot', 'leave it in the DuckDB database; a Paimon table has snapshots and tags of its own') %}
  {{ return(dbt.materialization_snapshot_default()) }}
{% endmaterialization %}

{% materialization table_function, adapter="duckdb" %}
  {% do lakecore_refuse('table function', 'leave it in the DuckDB database') %}
  {{ return(dbt_duckdb.materialization_table_function_duckdb()) }}
{% endmaterialization %}

{% macro lakecore_refuse(what, instead) %}
  {% if lakecore_keeps(this) %}
    {% do exceptions.raise_compiler_error(
        'a ' ~ what ~ ' cannot be kept in the warehouse "' ~ this.database ~ '": ' ~ instead) %}
  {% endif %}
{% endmacro %}

{% macro lakecore_refuse_python() %}
  {% if model['language'] == 'python' %}
    {% do exceptions.raise_compiler_error(
        'with the macros of lakecore, dbt runs a Python model only if its database is a warehouse') %}
  {% endif %}
{% endmacro %}

{#- The place of the rows: a table in memory, in the schema of the plugin, which drops it. -#}
{% macro lakecore_rows() %}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {#- A transaction of DuckDB writes to one database: what hooks write is not in that of the rows. -#}
  {% if pre_hooks %}{% do adapter.commit() %}{% endif %}
  {{ return(api.Relation.create(
      database=this.database,
      schema='__lakecore',
      identifier='m' ~ local_md5(model.unique_id) ~ py_current_timestring(),
      type='table')) }}
{% endmacro %}

{% macro lakecore_store(rows) %}
  {#- A view that the plugin makes is not seen by a transaction that began before. -#}
  {% do adapter.commit() %}

  {% set given = {} %}
  {% for key in ['unique_key', 'partition_by', 'incremental_strategy', 'on_schema_change', 'options',
      'indexes', 'grants', 'partitioned_by', 'sorted_by', 'sort_by', 'predicates', 'incremental_predicates',
      'merge_update_columns', 'merge_exclude_columns', 'merge_clauses', 'merge_update_condition',
      'merge_insert_condition', 'merge_on_using_columns', 'merge_returning_columns',
      'merge_update_set_expressions'] %}
    {% if config.get(key) %}{% do given.update({key: config.get(key)}) %}{% endif %}
  {% endfor %}
  {% do adapter.store_relation(this.database, this, [], rows.render(), 'lakecore', {
      'macros': 1,
      'given': given,
      'incremental': config.get('materialized') == 'incremental',
      'full_refresh': should_full_refresh(),
      'comment': model.description if config.persist_relation_docs() else none,
      'columns': model.columns if config.persist_column_docs() else {},
      'commit_user': var('lakecore_commit_user', invocation_id),
  }) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do adapter.commit() %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [this.incorporate(type='view')]}) }}
{% endmacro %}
