"""Create the table of the outbox."""

import django.utils.timezone
from django.db import migrations, models
from django.db.migrations.operations.base import Operation


class Migration(migrations.Migration):
    initial: bool = True
    dependencies: list[tuple[str, str]] = []
    operations: list[Operation] = [
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("id", models.BigAutoField(
                    auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("topic", models.CharField(max_length=80)),
                ("key", models.CharField(blank=True, default="", max_length=255)),
                ("body", models.BinaryField()),
                ("deliver_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("error", models.TextField(blank=True, default="")),
                ("retry_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "outbox message",
                "db_table": "nsqclient_outbox",
                "ordering": ["id"],
                "indexes": [models.Index(
                    condition=models.Q(("retry_at__isnull", False)),
                    fields=["topic", "key", "retry_at"], name="nsqclient_outbox_retry")],
            },
        ),
    ]
