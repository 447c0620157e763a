"""Where the lab is installed, and how to continue in the right virtualenv. Imported by the Python scripts here.

LAB_HOME (default: the folder lab in $ICEFERRY_CACHE, which is ~/.cache/iceferry unless set) holds what install.sh
built. Nothing to start or stop.
"""
import atexit
import glob
import os
import sys

LAB_DIR = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.abspath(os.environ.get("ICEFERRY_CACHE") or os.path.expanduser("~/.cache/iceferry"))
LAB_HOME = os.path.abspath(os.environ.get("LAB_HOME") or os.path.join(CACHE, "lab"))


def site_packages(venv):
    found = glob.glob(os.path.join(LAB_HOME, "venv", venv, "lib", "python3.*", "site-packages"))
    if not found:
        sys.exit(f"error: virtualenv {venv!r} is not installed; run install.sh")
    return found[0]


def continue_in(venv):
    """Replace this process by the virtualenv's Python, unless it is already the one running."""
    home = os.path.join(LAB_HOME, "venv", venv)
    if os.path.realpath(sys.prefix) == os.path.realpath(home):
        return
    python = os.path.join(home, "bin", "python")
    if not os.path.exists(python):
        sys.exit(f"error: virtualenv {venv!r} is not installed; run install.sh")
    os.execv(python, [python, "-B"] + sys.argv)


def java_jar(name):
    path = os.path.join(LAB_HOME, "java", name)
    if not os.path.exists(path):
        sys.exit(f"error: {name} is not built; run install.sh spark")
    return path


def iceberg_jar():
    jars = os.path.join(site_packages("spark"), "snowpark_connect_deps_iceberg", "jars")
    return os.path.join(jars, "iceberg-spark-runtime-3.5_2.12-1.10.2.jar")


def scratch_dir():
    folder = os.path.join(LAB_HOME, "tmp")
    os.makedirs(folder, exist_ok=True)
    return folder


def scratch_file(name):
    """A path in the scratch folder, removed when the process ends."""
    path = os.path.join(scratch_dir(), name)
    atexit.register(lambda: os.path.exists(path) and os.remove(path))
    return path


def start_spark(jars, catalogs):
    """A local two-thread Spark with Iceberg. catalogs: {name: {property: value}}. Call continue_in('spark') first."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = scratch_dir()
    sqlite = f"-Dorg.sqlite.lib.path={LAB_HOME}/java -Dorg.sqlite.lib.name=libsqlitejdbc.so"
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(jars))
        .config("spark.driver.extraClassPath", ":".join(jars))
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", scratch)
        .config("spark.driver.extraJavaOptions", f"{sqlite} -Djava.io.tmpdir={scratch}")
        .config("spark.sql.warehouse.dir", os.path.join(scratch, "spark-warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    for name, properties in catalogs.items():
        builder = builder.config(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
        for key, value in properties.items():
            builder = builder.config(f"spark.sql.catalog.{name}.{key}", value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    atexit.register(spark.stop)
    return spark
